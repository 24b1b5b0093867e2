import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { jest } from '@jest/globals';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { ExpiringMap } from '../../../lib/backends/memory/expiring-map.js';
import { memoryCacheStore } from '../../../lib/backends/memory/memory-cache-store.js';
import { redisGlob } from '../../../lib/keys/redis-glob.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { RecordingCacheListener } from '../../support/recording-cache-listener.js';

it('matches what Redis matches', async () => {
  await using server = await startRedisServer();
  const client = new Redis(server.url);
  const letters = fc.constantFrom('a', 'b', 'c', 'z', '-', ']', '[', '^', '\\', '*', '?', 'ü', '.', '\n');
  // Behind a prefix, as the keys of the cache are.
  const texts = fc.sample(fc.string({ unit: letters, maxLength: 5 }), 1_000).map((text) => `cache:${text}`);
  await client.mset(texts.flatMap((text) => [text, '']));
  try {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: letters, maxLength: 8 }), async (glob) => {
        const pattern = `cache:${glob}`;
        // Whether such a byte is below or above all others depends on the machine that Redis runs on.
        fc.pre(!/-ü|ü-/.test(pattern));
        const expected = (await client.keys(pattern)).toSorted();
        expect([...new Set(texts)].filter(redisGlob(pattern)).toSorted()).toEqual(expected);
      }),
      { numRuns: 1_000 },
    );
  } finally {
    client.disconnect();
  }
});

it('lives by the clock that a test runner replaces', async () => {
  jest.useFakeTimers();
  try {
    const store = memoryCacheStore();
    const listener = new RecordingCacheListener();
    store.listen(listener);
    await store.set({ key: 'a', data: 'x', ttl: 60_000 });
    jest.advanceTimersByTime(59_999);
    expect(await store.read('a')).toEqual(Buffer.from('x'));
    jest.advanceTimersByTime(1);
    expect(await store.read('a')).toBeNull();
    expect(listener.heard).toEqual(['connected', 'invalidated a']);
  } finally {
    jest.useRealTimers();
  }
});

it('is a world of its own', async () => {
  const [one, another] = [memoryCacheStore(), memoryCacheStore()];
  await one.set({ key: 'a', data: 'x', ttl: 60_000 });
  expect(await another.read('a')).toBeNull();
});

it('forgets what has ended and is never asked for again', async () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const map = new ExpiringMap<object>();
  const [ended, lives] = (() => {
    const values = [{}, {}] as const;
    map.set('ended', values[0], 1);
    map.set('lives', values[1], 60_000);
    return values.map((value) => new WeakRef(value));
  })();
  await eventually(() => {
    for (let index = 0; index < 5_000; index++) map.set(String(index), {}, 60_000);
    collectGarbage();
    return ended?.deref() === undefined;
  });
  expect(lives?.deref()).toBe(map.get('lives'));
  expect(map.get('lives')).toBeDefined();
});
