import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { startRedisCluster, type RedisCluster } from '../../../support/servers/redis-cluster.js';
import { scriptedCache } from '../../../support/scripted-cache.js';

let server: RedisServer;
let cluster: RedisCluster;

beforeAll(async () => {
  [server, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
});
afterAll(() => Promise.all([server.stop(), cluster.stop()]));

async function onCluster() {
  const client = cluster.client();
  const instance = await openCache({ redis: client, prefix: 'shop' });
  const close = async () => {
    await instance.close();
    client.disconnect();
  };
  return { ...instance, close, [Symbol.asyncDispose]: close };
}

describe.each([
  ['on Redis', () => openCache({ redis: { port: server.port, keyPrefix: 'mine:' }, cache: { l1: {} } })],
  ['on a Cluster', onCluster],
  ['in memory', () => openCache({ redis: server.url, cache: { memory: {} } })],
])('%s', (_, open) => {
  it('del answers how many values there were', async () => {
    await using instance = await open();
    const { cache } = instance;
    await cache.mset({ a: 1, b: { c: 2 } });
    expect(await cache.del(['a', 'b', 'none'])).toBe(2);
    expect(await cache.del('a')).toBe(0);
    await cache.getOrSet('stale', () => 'old', { ttl: 1, staleTtl: '1h' });
    await eventually(async () => !(await cache.has('stale')));
    expect(await cache.del('stale')).toBe(1);
    expect(await cache.invalidate('stale')).toBeUndefined();
  });

  it('one of all who ask gets a value, whatever it is, and nothing is left', async () => {
    await using instance = await open();
    const { cache } = instance;
    const values = ['text ü', 7, { of: new Date(0), bytes: Buffer.from([0, 255, 128]) }, null];
    for (const value of values) {
      await cache.set('once}', value);
      expect(await cache.getOrSet('once}', () => 'loaded')).toEqual(value);
      const got = await Promise.all(Array.from({ length: 10 }, () => cache.getDel('once}')));
      expect(got.filter((each) => each !== undefined)).toEqual([value]);
      expect(await cache.has('once}')).toBe(false);
    }
    expect(await cache.getDel('never')).toBeUndefined();
  });

  it('what is stale, or ended by a tag, is deleted and no answer', async () => {
    await using instance = await open();
    const { cache } = instance;
    await cache.set('k', 'old', { ttl: '1h' });
    await cache.expire('k', { soft: true });
    expect(await cache.getDel('k')).toBeUndefined();
    expect(await cache.ttl('k')).toBeNull();
    await cache.set('k', 'old', { tags: ['t'] });
    await cache.deleteByTag('t');
    expect(await cache.getDel('k')).toBeUndefined();
    await cache.set('k', 'new', { tags: ['t'] });
    expect(await cache.getDel('k')).toBe('new');
  });

  it('fences the loads that began before, and keeps the order of the calls', async () => {
    await using instance = await open();
    const { cache } = instance;
    const [begun, gate] = [new Gate(), new Gate()];
    const slow = cache.getOrSet('k', async () => {
      begun.open();
      await gate.opened;
      return 'read before';
    });
    await begun.opened;
    expect(await cache.getDel('k')).toBeUndefined();
    gate.open();
    await slow;
    expect(await cache.has('k')).toBe(false);
    const done = await cache.pipeline().set('k', 1).getDel('k').get('k').set('k', 2).del(['k', 'none']).has('k').exec();
    expect(done).toEqual([undefined, 1, undefined, undefined, 1, false]);
  });

  it('sets stand in pipelines, in the order of the calls', async () => {
    await using instance = await open();
    const cache = instance.cache.namespace('sets');
    const done = await cache
      .pipeline()
      .sets.add('s', ['a', 'b'], { ttl: '1h' })
      .sets.remove('s', 'a')
      .sets.has('s', 'a')
      .sets.members('s')
      .set('s', 'value')
      .expiringSet.add('s', ['x', 'y'], '1h')
      .expiringSet.remove('s', 'x')
      .expiringSet.has('s', 'y')
      .expiringSet.members('s')
      .expiringSet.size('s')
      .get<string>('s')
      .exec();
    expect(done).toEqual([2, 1, false, ['b'], undefined, 2, 1, true, ['y'], 1, 'value']);
    expect(await cache.sets.members('s')).toEqual(['b']);
  });
});

it('a getDel that is not confirmed is no answer, and deletes later', async () => {
  using scripted = scriptedCache();
  const { cache, store } = scripted;
  const { take, invalidate } = store;
  await cache.set('k', 'v');
  const refused = () => Promise.reject(new Error('refused'));
  Object.assign(store, { take: refused, invalidate: refused });
  expect(await cache.getDel('k')).toBeUndefined();
  await expect(cache.getDel('k', { onRedisError: 'throw' })).rejects.toMatchObject({ code: 'CACHE_BACKEND' });
  expect(await cache.del('k')).toBe(0);
  Object.assign(store, { take, invalidate });
  await eventually(() => scripted.engine.stats().unconfirmedInvalidations === 0);
  expect(await cache.get('k')).toBeUndefined();
});
