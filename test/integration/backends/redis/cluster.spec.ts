import { setTimeout as sleep } from 'node:timers/promises';
import { jest } from '@jest/globals';
import { Cluster } from 'ioredis';
import { CacheService, IdempotencyService, LockKeyError, LockLostError, SemaphoreService } from 'nest-redis-lock';
import { openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { RENEW_ONE } from '../../../../lib/backends/redis/locks/release.lua.js';
import { RENEW_PERMITS } from '../../../../lib/backends/redis/primitives/redis-semaphore-store.js';
import { RENEWED_OFTEN, renewedAgain } from '../../../support/renewals.js';
import { type RedisCluster, startRedisCluster } from '../../../support/servers/redis-cluster.js';

let cluster: RedisCluster;
let client: Cluster;
let app: LockApp;

beforeAll(async () => {
  cluster = await startRedisCluster();
  client = cluster.client();
  app = await startLockApp({ redis: client });
});
afterAll(async () => {
  await app.close();
  client.disconnect();
  await cluster.stop();
});

/** A body that blocks its event loop from its first line has no time to send the script again. */
it('knows the scripts of renewals on every master before the first renewal', async () => {
  const masters = client.nodes('master');
  const known = async ({ sha1 }: { readonly sha1: string }) => {
    const all = await Promise.all(masters.map((node) => node.script('EXISTS', sha1)));
    return all.flat().every((each) => each === 1);
  };
  expect(masters).toHaveLength(3);
  await eventually(() => known(RENEW_ONE));
  const semaphores = app.app.get(SemaphoreService);
  const permit = await semaphores.acquire('known', { permits: 1 });
  const waiting = semaphores.acquire('known', { permits: 1, wait: '20s' });
  await eventually(() => known(RENEW_PERMITS));
  await permit.release();
  await (await waiting).release();
});

it('takes, renews and gives back single locks on every node', async () => {
  const names = Array.from({ length: 30 }, (_, index) => `name:${index}`);
  const locks = await Promise.all(names.map((name) => app.locks.acquire(name, RENEWED_OFTEN)));
  expect(await app.locks.tryAcquire('name:7')).toBeNull();
  await renewedAgain(...locks);
  await Promise.all(locks.map((lock) => lock.release()));
  for (const name of names) expect(await app.locks.isLocked(name)).toBe(false);
});

it.each([['{t}:a', '{t}:b'], ['}x'], ['a}b'], ['a{b']])('takes %s, whose keys share a slot', async (...names) => {
  const lock = await app.locks.acquire(names, RENEWED_OFTEN);
  expect(await app.locks.tryAcquire(names)).toBeNull();
  await renewedAgain(lock);
  await lock.release();
});

it('serves locks and cache on a client with enableAutoPipelining', async () => {
  const nodes = cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port }));
  const pipelining = new Cluster(nodes, { enableAutoPipelining: true });
  const pipelined = await startLockApp({ redis: pipelining, cache: { defaults: { onRedisError: 'throw' } } });
  const cache = pipelined.app.get(CacheService);
  const names = Array.from({ length: 40 }, (_, index) => `pipelined:${index}`);
  await Promise.all(
    names.map((name, index) =>
      pipelined.locks.withLock(name, async () => {
        await cache.set(name, index);
        expect(await cache.getOrSet(`${name}:loaded`, async () => index)).toBe(index);
      }),
    ),
  );
  expect(await Promise.all(names.map((name) => cache.get(name)))).toEqual([...names.keys()]);
  expect(await cache.inspect('pipelined:1')).toMatchObject({ state: 'fresh' });
  expect(await Promise.all(names.map((name) => cache.getDel(name)))).toEqual([...names.keys()]);
  const results = pipelined.app.get(IdempotencyService);
  expect(await Promise.all(names.map((name) => results.run(name, { ttl: '1h' }, async () => name)))).toEqual(names);
  await pipelined.close();
  pipelining.disconnect();
});

it('says how to tag names that lie in different slots, and takes none of them', async () => {
  const error: unknown = await app.locks.acquire(['a', 'b']).catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(LockKeyError);
  expect((error as Error).message).toMatch(/"\{shop\}a" and "\{shop\}b"/);
  expect(await app.locks.isLocked('a')).toBe(false);
});

it('hands hot locks over between processes, on every node', async () => {
  const second = cluster.client();
  const other = await startLockApp({ redis: second });
  const names = ['hot:1', 'hot:2', 'hot:3', 'hot:4'];
  const inside = new Map<string, number>();
  const tokens = new Map<string, number[]>();
  const served = [0, 0];
  const loop = async ({ locks }: LockApp, name: string, index: number) => {
    while (Math.min(...served) <= 50) {
      await locks.withLock(name, async ({ fencingToken }) => {
        expect(inside.get(name) ?? 0).toBe(0);
        inside.set(name, 1);
        tokens.set(name, [...(tokens.get(name) ?? []), fencingToken]);
        await sleep(1);
        inside.set(name, 0);
        served[index] = (served[index] ?? 0) + 1;
      });
    }
  };
  await Promise.all(
    [app, other].flatMap((each, index) => names.flatMap((name) => [1, 2].map(() => loop(each, name, index)))),
  );
  await other.close();
  second.disconnect();
  for (const issued of tokens.values()) expect(issued).toEqual([...new Set(issued)].toSorted((a, b) => a - b));
});

it('keeps the locks of the other nodes while one hangs', async () => {
  const names = Array.from({ length: 30 }, (_, index) => `spread:${index}`);
  const locks = await Promise.all(names.map((name) => app.locks.acquire(name, { ttl: 900 })));
  cluster.servers[0]?.process.pause();
  await eventually(() => locks.some((lock) => lock.signal.aborted));
  await sleep(1_000);
  const held = locks.filter((lock) => lock.held);
  cluster.servers[0]?.process.resume();
  expect(held.length).toBeGreaterThanOrEqual(10);
  expect(held.length).toBeLessThan(30);
  const outcomes = await Promise.allSettled(locks.map((lock) => lock.release()));
  for (const [index, outcome] of outcomes.entries()) {
    if (held.includes(locks[index] as (typeof locks)[number])) expect(outcome.status).toBe('fulfilled');
    else expect(outcome).toMatchObject({ reason: expect.any(LockLostError) });
  }
});

it('needs one heartbeat to hear other processes, also where the client is ready after the subscriber', async () => {
  const late = cluster.client();
  const noOther = jest.spyOn(globalThis, 'setInterval').mockImplementation(() => setTimeout(() => {}, 0));
  try {
    await using instance = await openCache({ redis: late, cache: {} });
    expect(instance.engine.busConnected).toBe(true);
  } finally {
    noOther.mockRestore();
    late.disconnect();
  }
});
