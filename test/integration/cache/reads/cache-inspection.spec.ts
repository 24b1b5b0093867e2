import { Redis } from 'ioredis';
import type { CacheOptions } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { startRedisCluster, type RedisCluster } from '../../../support/servers/redis-cluster.js';

let server: RedisServer;
let cluster: RedisCluster;

beforeAll(async () => {
  [server, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
});
afterAll(() => Promise.all([server.stop(), cluster.stop()]));

async function onCluster() {
  const client = cluster.client();
  const instance = await openCache({ redis: client });
  const close = async () => {
    await instance.close();
    client.disconnect();
  };
  return { ...instance, close, [Symbol.asyncDispose]: close };
}

const onRedis = (prefix: string, cache: CacheOptions = {}) => openCache({ redis: server.url, prefix, cache });
const MINUTE = 60_000;

describe.each([
  ['on Redis', () => onRedis('plain')],
  ['on Redis, with a first level', () => onRedis('fronted', { l1: {} })],
  [
    'with a serializer of the application',
    () =>
      onRedis('own', {
        serializer: {
          name: 'json',
          serialize: JSON.stringify,
          deserialize: (data) => JSON.parse(data.toString()) as unknown,
        },
      }),
  ],
  ['on a Cluster', onCluster],
  ['in memory', () => openCache({ redis: server.url, cache: { memory: {} } })],
])('CacheService.inspect %s', (_, open) => {
  it('is null where there is nothing', async () => {
    await using instance = await open();
    expect(await instance.cache.inspect('nothing')).toBeNull();
  });

  it('shows a value that is fresh, and until when it is kept', async () => {
    await using instance = await open();
    const { cache } = instance;
    await cache.set('fresh', 'x'.repeat(500), { ttl: '5m', jitter: 0 });
    const info = await cache.inspect('fresh');
    expect(info).toEqual({
      state: 'fresh',
      freshFor: expect.any(Number),
      keptFor: info?.freshFor,
      bytes: expect.any(Number),
      tags: [],
      invalidatedTags: [],
      barrier: false,
    });
    expect(info?.freshFor).toBeGreaterThan(4 * MINUTE);
    expect(info?.freshFor).toBeLessThanOrEqual(5 * MINUTE);
    expect(info?.bytes).toBeGreaterThanOrEqual(500);
    expect(info?.bytes).toBeLessThan(600);
    await cache.incr('count', { ttl: '5m' });
    expect(await cache.inspect('count')).toMatchObject({ state: 'fresh', bytes: 1 });
  });

  it('shows a value that is stale, by time and by a soft expiry', async () => {
    await using instance = await open();
    const { cache } = instance;
    const kept = { ttl: '5m', staleTtl: '1h', jitter: 0, tags: ['a', 'b'] } as const;
    await cache.getOrSet('stale', () => 'old', kept);
    const before = await cache.inspect('stale');
    expect(before).toMatchObject({ state: 'fresh', tags: ['a', 'b'], invalidatedTags: [] });
    expect(before?.freshFor).toBeLessThanOrEqual(5 * MINUTE);
    expect(before?.keptFor).toBeGreaterThan(60 * MINUTE);
    await cache.expireByTag('b');
    expect(await cache.inspect('stale')).toMatchObject({ state: 'stale', freshFor: 0, invalidatedTags: [] });
    await cache.getOrSet('timed', () => 'old', { ttl: 1, staleTtl: '1h', jitter: 0 });
    await eventually(async () => (await cache.inspect('timed'))?.state === 'stale');
    expect((await cache.inspect('timed'))?.keptFor).toBeGreaterThan(30 * MINUTE);
    await cache.getOrSet('softly', () => 'old', { ...kept, tags: [] });
    await cache.expire('softly', { soft: true });
    expect(await cache.inspect('softly')).toMatchObject({ state: 'stale', freshFor: 0, tags: [] });
  });

  it('shows a value as invalidated whose tag was, although it is still stored', async () => {
    await using instance = await open();
    const cache = instance.cache.namespace('shop');
    await cache.set('tagged', 'old', { ttl: '5m', tags: ['kept', 'gone'] });
    await cache.deleteByTag('gone');
    expect(await cache.get('tagged')).toBeUndefined();
    const info = await cache.inspect('tagged');
    expect(info).toMatchObject({ state: 'invalidated', freshFor: 0, invalidatedTags: ['shop:gone'] });
    expect(info?.tags).toEqual(['shop:kept', 'shop:gone']);
    expect(info?.keptFor).toBeGreaterThan(0);
    await cache.del('tagged');
    expect(await cache.inspect('tagged')).toBeNull();
  });

  it('shows who loads the value, and writes that are under way', async () => {
    await using instance = await open();
    const { cache } = instance;
    const gate = new Gate();
    const loading = cache.getOrSet('slow', async () => {
      await gate.opened;
      return 'loaded';
    });
    await eventually(async () => (await cache.inspect('slow')) !== null);
    const info = await cache.inspect('slow');
    expect(info).toMatchObject({ state: 'absent', bytes: 0, keptFor: 0, barrier: false });
    expect(info?.loading).toBeGreaterThan(0);
    gate.open();
    await loading;
    expect(await cache.inspect('slow')).toMatchObject({ state: 'fresh' });
    expect(await cache.inspect('slow')).not.toHaveProperty('loading');
    await cache.mutate('written', async () => {
      expect(await cache.inspect('written')).toMatchObject({ state: 'absent', barrier: true });
    });
    await eventually(async () => (await cache.inspect('written'))?.barrier !== true);
  });
});

it('shows data without an envelope as unreadable', async () => {
  await using instance = await onRedis('foreign');
  const redis = new Redis(server.url);
  for (const foreign of ['text', '', '12\n34', '\u0001\u0050zzz{"g":\n', 'y'.repeat(100_000)]) {
    await redis.set('foreign:cache:key', foreign);
    expect(await instance.cache.inspect('key')).toMatchObject({
      state: 'unreadable',
      keptFor: Infinity,
      bytes: foreign.length,
    });
    expect(await instance.cache.get('key')).toBeUndefined();
  }
  redis.disconnect();
});

it('asks Redis once, and once more for the tags of a value', async () => {
  await using instance = await onRedis('counted');
  await instance.cache.set('plain', 'x', { ttl: '5m' });
  await instance.cache.set('tagged', 'x', { ttl: '5m', tags: ['a', 'b', 'c'] });
  const redis = new Redis(server.url);
  const monitor = await redis.monitor();
  const seen: string[] = [];
  monitor.on('monitor', (_time: string, [command = '', ...args]: string[], source: string) => {
    if (source !== 'lua') seen.push([command.toLowerCase(), ...args].join(' '));
  });
  const ended = async (mark: string) => {
    await redis.echo(mark);
    await eventually(() => seen.includes(`echo ${mark}`));
    return seen.splice(0).filter((line) => line.includes('counted:'));
  };
  await instance.cache.inspect('plain');
  expect(await ended('one')).toHaveLength(1);
  await instance.cache.inspect('tagged');
  // The reads of the tags are sent together.
  const [script, ...reads] = await ended('two');
  expect(script).toMatch(/^eval/);
  const tags = ['a', 'b', 'c'].map((tag) => `counted:cache-tag:${tag}`);
  expect(reads.flatMap((line) => line.split(' ').slice(1))).toEqual(tags);
  monitor.disconnect();
  redis.disconnect();
});
