import { type Cluster, Redis } from 'ioredis';
import { RedisCacheKeys } from '../../../../lib/backends/redis/cache/redis-cache-keys.js';
import {
  RedisCacheBits,
  RedisCacheSets,
  RedisExpiringSets,
} from '../../../../lib/backends/redis/cache/redis-collections.js';
import { integerOf } from '../../../../lib/backends/redis/connection/redis-script.js';
import { ScriptRunner } from '../../../../lib/backends/redis/connection/script-runner.js';
import { eventually } from '../../../support/eventually.js';
import { type RedisCluster, startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

const TTL = 60_000;

let server: RedisServer;
let cluster: RedisCluster;

beforeAll(async () => {
  server = await startRedisServer();
  cluster = await startRedisCluster();
});
afterAll(async () => {
  await server.stop();
  await cluster.stop();
});

const clients: [string, () => Redis | Cluster][] = [
  ['a client', () => new Redis(server.url)],
  [
    'a client with a keyPrefix and numbers as strings',
    () => new Redis(server.url, { keyPrefix: 'app:', stringNumbers: true }),
  ],
  ['a Cluster', () => cluster.client()],
];

describe.each(clients)('with %s', (_, connect) => {
  let client: Redis | Cluster;
  let scripts: ScriptRunner;
  let keys: RedisCacheKeys;

  beforeAll(() => {
    client = connect();
    scripts = new ScriptRunner(client);
    keys = new RedisCacheKeys('shop', client.options.keyPrefix);
  });
  afterAll(() => {
    scripts.close();
    client.disconnect();
  });

  const left = async (key: string) => integerOf(await client.pttl(key));

  describe('a set', () => {
    let sets: RedisCacheSets;
    beforeAll(() => (sets = new RedisCacheSets(scripts, keys)));

    it('counts the new members, and those that it loses', async () => {
      expect(await sets.add('s', ['a', 'b', 'a'], TTL)).toBe(2);
      expect(await sets.add('s', ['b', 'c'], TTL)).toBe(1);
      expect([...(await sets.members('s'))].toSorted()).toEqual(['a', 'b', 'c']);
      expect([await sets.has('s', 'a'), await sets.has('s', 'x')]).toEqual([true, false]);
      expect(await sets.remove('s', ['a', 'x'])).toBe(1);
      expect(await sets.has('s', 'a')).toBe(false);
      expect(await sets.remove('s', ['b', 'c'])).toBe(2);
      expect(await sets.members('s')).toEqual([]);
    });

    it('lives as a whole for the ttl of the last addition', async () => {
      await sets.add('ttl', ['a'], TTL);
      await sets.add('ttl', ['b'], 2 * TTL);
      expect(await left(keys.set('ttl'))).toBeGreaterThan(TTL);
      await sets.add('ttl', ['a'], 50);
      await eventually(async () => (await sets.members('ttl')).length === 0);
    });

    it('takes many members at once, and none', async () => {
      const members = Array.from({ length: 20_000 }, (_each, index) => `member:${index}`);
      expect(await sets.add('many', members, TTL)).toBe(members.length);
      expect(await sets.remove('many', members)).toBe(members.length);
      expect(await sets.add('none', [], TTL)).toBe(0);
      expect(await sets.remove('none', [])).toBe(0);
    });
  });

  describe('an expiring set', () => {
    let sets: RedisExpiringSets;
    beforeAll(() => (sets = new RedisExpiringSets(scripts, keys)));

    it('lets each member live for a time of its own', async () => {
      expect(await sets.add('e', ['long'], TTL)).toBe(1);
      expect(await sets.add('e', ['short', 'long'], 500)).toBe(1);
      expect(await sets.add('e', ['long'], TTL)).toBe(0);
      expect(await sets.members('e')).toEqual(['short', 'long']);
      expect(await sets.size('e')).toBe(2);
      await eventually(async () => !(await sets.has('e', 'short')));
      expect(await sets.has('e', 'long')).toBe(true);
      expect(await sets.members('e')).toEqual(['long']);
      expect(await sets.size('e')).toBe(1);
      expect(await sets.remove('e', ['short', 'long'])).toBe(1);
      expect(integerOf(await client.exists(keys.expiringSet('e')))).toBe(0);
    });

    it('drops what has expired before it counts', async () => {
      await client.zadd(keys.expiringSet('again'), 1, 'a', 2, 'b', 3, 'c');
      expect(await sets.add('again', ['a'], TTL)).toBe(1);
      await client.zadd(keys.expiringSet('again'), 1, 'b');
      expect(await sets.remove('again', ['b'])).toBe(0);
    });

    it('expires with its last member, also when that is removed or ends earlier', async () => {
      const key = keys.expiringSet('end');
      await sets.add('end', ['a'], TTL);
      await sets.add('end', ['b'], 3 * TTL);
      expect(await left(key)).toBeGreaterThan(2 * TTL);
      await sets.remove('end', ['b']);
      expect(await left(key)).toBeLessThanOrEqual(TTL);
      await sets.add('end', ['a'], 100);
      await eventually(async () => integerOf(await client.exists(key)) === 0);
    });
  });

  describe('bits', () => {
    let bits: RedisCacheBits;
    const lease = TTL;
    beforeAll(() => (bits = new RedisCacheBits(scripts, keys)));

    const has = (key: string, ...lists: number[][]) => bits.has({ key, lists, ttl: TTL });
    const rebuild = async (key: string, token: string, positions: number[]) => {
      expect(await bits.beginRebuild({ key, token, lease, size: 1_000 })).toBe(true);
      expect(await bits.addToRebuild({ key, token, lease, positions })).toBe(true);
      expect(await bits.finishRebuild({ key, token, ttl: TTL })).toBe(true);
    };

    it('are not begun by what is added to nothing', async () => {
      await bits.add({ key: 'nothing', positions: [1], ttl: TTL });
      expect(await has('nothing', [1])).toBeNull();
      expect(integerOf(await client.exists(keys.bits('nothing'), keys.rebuiltBits('nothing')))).toBe(0);
    });

    it.each(['plain', 'a}b', '}x', '{t}:x', 'a{b', '%7Dx'])('are rebuilt and added to under %s', async (key) => {
      await rebuild(key, 'token', [3, 999]);
      await bits.add({ key, positions: [3, 500], ttl: TTL });
      expect(await has(key, [3, 999], [3, 500], [3, 4], [4, 5])).toEqual([true, true, false, false]);
      await bits.clear(key);
      expect(await has(key, [3])).toBeNull();
    });

    it('are what they were until a rebuild is finished, and then hold what was added meanwhile', async () => {
      await rebuild('r', 'one', [1]);
      expect(await bits.beginRebuild({ key: 'r', token: 'two', lease, size: 1_000 })).toBe(true);
      await bits.addToRebuild({ key: 'r', token: 'two', lease, positions: [2] });
      await bits.add({ key: 'r', positions: [3], ttl: TTL });
      expect(await has('r', [1], [2], [3])).toEqual([true, false, true]);
      expect(await bits.finishRebuild({ key: 'r', token: 'two', ttl: TTL })).toBe(true);
      expect(await has('r', [1], [2], [3])).toEqual([false, true, true]);
    });

    it('are rebuilt by one at a time', async () => {
      const begin = (token: string, ms = lease) => bits.beginRebuild({ key: 'one', token, lease: ms, size: 1_000 });
      expect(await begin('first', 300)).toBe(true);
      expect(await begin('second')).toBe(false);
      expect(await bits.addToRebuild({ key: 'one', token: 'second', lease, positions: [1] })).toBe(false);
      expect(await bits.finishRebuild({ key: 'one', token: 'second', ttl: TTL })).toBe(false);
      await bits.dropRebuild({ key: 'one', token: 'second' });
      await eventually(() => begin('second'));
      expect(await bits.addToRebuild({ key: 'one', token: 'first', lease, positions: [1] })).toBe(false);
      expect(await bits.finishRebuild({ key: 'one', token: 'first', ttl: TTL })).toBe(false);
      await bits.dropRebuild({ key: 'one', token: 'second' });
      expect(await begin('third')).toBe(true);
      expect(await has('one', [1])).toBeNull();
    });

    it('lose a rebuild whose bits Redis has evicted, and one that was cleared', async () => {
      const key = 'lost';
      await bits.beginRebuild({ key, token: 'a', lease, size: 1_000 });
      await client.del(keys.rebuiltBits(key));
      expect(await bits.addToRebuild({ key, token: 'a', lease, positions: [1] })).toBe(false);
      expect(await bits.finishRebuild({ key, token: 'a', ttl: TTL })).toBe(false);
      await bits.clear(key);
      await bits.beginRebuild({ key, token: 'b', lease, size: 1_000 });
      await bits.clear(key);
      expect(await bits.finishRebuild({ key, token: 'b', ttl: TTL })).toBe(false);
      expect(await has(key, [1])).toBeNull();
    });

    it('take every step twice', async () => {
      const key = 'twice';
      const request = { key, token: 'a', lease, size: 1_000 };
      expect(await bits.beginRebuild(request)).toBe(true);
      await bits.addToRebuild({ key, token: 'a', lease, positions: [1] });
      expect(await bits.beginRebuild(request)).toBe(true);
      expect(await bits.finishRebuild({ key, token: 'a', ttl: TTL })).toBe(true);
      expect(await bits.finishRebuild({ key, token: 'a', ttl: TTL })).toBe(true);
      expect(await has(key, [1])).toEqual([true]);
      expect(await bits.beginRebuild({ ...request, token: 'b' })).toBe(true);
      expect(await bits.finishRebuild({ key, token: 'a', ttl: TTL })).toBe(false);
    });

    it('all expire, and live longer while they are used', async () => {
      const key = 'kept';
      await rebuild(key, 'a', [1]);
      await bits.beginRebuild({ key, token: 'b', lease, size: 1_000 });
      for (const each of [keys.bits(key), keys.rebuiltBits(key), keys.rebuilder(key)]) {
        expect(await left(each)).toBeGreaterThan(TTL - 10_000);
      }
      const uses = [() => has(key, [1]), () => bits.add({ key, positions: [1], ttl: TTL })];
      for (const use of uses) {
        await client.pexpire(keys.bits(key), TTL / 2 - 1_000);
        await use();
        expect(await left(keys.bits(key))).toBeGreaterThan(TTL - 10_000);
        await client.pexpire(keys.bits(key), TTL - 10_000);
        await use();
        expect(await left(keys.bits(key))).toBeLessThanOrEqual(TTL - 10_000);
      }
    });

    it('reach as far as a string of Redis does', async () => {
      expect(await bits.beginRebuild({ key: 'far', token: 'a', lease, size: 10 })).toBe(true);
      await bits.addToRebuild({ key: 'far', token: 'a', lease, positions: [2 ** 28 - 1] });
      await bits.finishRebuild({ key: 'far', token: 'a', ttl: TTL });
      expect(await has('far', [2 ** 28 - 1], [2 ** 32 - 1])).toEqual([true, false]);
      await bits.clear('far');
    });
  });
});

it('survives SCRIPT FLUSH', async () => {
  const client = new Redis(server.url);
  const scripts = new ScriptRunner(client);
  const sets = new RedisExpiringSets(scripts, new RedisCacheKeys('flush'));
  await sets.add('s', ['a'], TTL);
  await client.script('FLUSH');
  expect(await sets.add('s', ['b'], TTL)).toBe(1);
  expect(await sets.members('s')).toEqual(['a', 'b']);
  scripts.close();
  client.disconnect();
});
