import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import type { CacheEntryOptions } from '../../lib/cache/options/cache-options.js';
import {
  clientWithBusThrough,
  closeCaches,
  openCache,
  openCaches,
  type CacheInstance,
} from '../support/cache-instance.js';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { quietTimeSince } from '../support/quiet-time.js';

let server: RedisServer;
let redis: Redis;
let instances: CacheInstance[];

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
  instances = await openCaches(4, server.port);
});
beforeEach(() => redis.flushall());
afterAll(async () => {
  await closeCaches(instances);
  redis.disconnect();
  await server.stop();
});

/**
 * Reads once with `callers` callers in each of `apps` applications; returns how often the loader ran, and the results.
 */
async function stampede(apps: number, callers: number, time: number, options?: CacheEntryOptions) {
  let loads = 0;
  const loader = async () => {
    loads += 1;
    await sleep(time);
    return loads;
  };
  const begun = performance.now();
  const reads = instances
    .slice(0, apps)
    .flatMap(({ cache }) => Array.from({ length: callers }, () => cache.getOrSet('hot', loader, options)));
  const values = new Set(await Promise.all(reads));
  return { loads, values: [...values], took: quietTimeSince(begun) };
}

describe('many callers of one key (bentocache #2, cacheable #888, #1201)', () => {
  it('1,000 of one application cause one load', async () => {
    expect(await stampede(1, 1_000, 50)).toMatchObject({ loads: 1, values: [1] });
  });

  it('50 of each of four applications cause one load, and no caller waits much longer than it takes', async () => {
    const times: number[] = [];
    // A busy machine delays one of them; a caller that waits for its next look, and not for the message, delays all.
    for (let time = 0; time < 5 && Math.min(Infinity, ...times) >= 400; time++) {
      const { took, ...rest } = await stampede(4, 50, 200);
      expect(rest).toEqual({ loads: 1, values: [1] });
      times.push(took);
      await instances[0]?.cache.del('hot');
    }
    expect(Math.min(...times)).toBeLessThan(400);
  });

  it('one load even if it takes much longer than its lease (the cliff of locks with a fixed time)', async () => {
    const { took, ...rest } = await stampede(4, 50, 2_500, { lock: { lease: 1_000 } });
    expect(rest).toEqual({ loads: 1, values: [1] });
    expect(took).toBeLessThan(2_500 + 1_000);
  });

  it('a lease that is not renewed passes to another load as soon as it ends, and no load stores late', async () => {
    const { loads } = await stampede(2, 5, 250, { lock: { lease: 100, renew: false } });
    expect(loads).toBe(2);
    expect(instances.reduce((sum, { cache }) => sum + cache.stats().refusedCommits, 0)).toBe(2);
    expect(await redis.exists('cache:hot')).toBe(0);
  });

  it('one load even if no message arrives: the others look for its end', async () => {
    const proxy = await FaultProxy.start(server.port);
    const client = clientWithBusThrough({ port: server.port }, proxy.port);
    const deaf = await openCache({ redis: client, cache: {} });
    proxy.silence();
    const begun = performance.now();
    const loading = instances[0]!.cache.getOrSet('hot', () => sleep(200, 1));
    await eventually(() => redis.exists('lease:{cache:hot}'), { every: 1 });
    expect(await deaf.cache.getOrSet('hot', () => 2)).toBe(1);
    expect(quietTimeSince(begun)).toBeLessThan(600);
    await loading;
    await deaf.close();
    client.disconnect();
    await proxy.stop();
  });

  it('one load even of a stale value, whose callers wait for the fresh one', async () => {
    await instances[0]!.cache.getOrSet('hot', () => 0, { ttl: 1, jitter: 0, staleTtl: '1m' });
    await sleep(5);
    const options: CacheEntryOptions = { ttl: '1m', staleTtl: '1m', softTimeout: '1s' };
    expect(await stampede(4, 50, 100, options)).toMatchObject({ loads: 1, values: [1] });
  });
});

describe('many callers in processes of their own', () => {
  const start = (time: number, options: CacheEntryOptions = {}) =>
    Child.start('cache-loader.mjs', [String(server.port), 'hot', '50', String(time), JSON.stringify(options)]);

  async function go(...children: Child[]): Promise<void> {
    await Promise.all(children.map((child) => child.says('ready')));
    for (const child of children) await redis.lpush(`start:${child.pid}`, 1);
  }

  it('four of them: one load', async () => {
    const children = [1, 2, 3, 4].map(() => start(300));
    try {
      await go(...children);
      const reads = await Promise.all(children.map((child) => child.says<{ values: number[] }>('done')));
      expect(new Set(reads.flatMap(({ values }) => values)).size).toBe(1);
      expect(await redis.get('loads:hot')).toBe('1');
    } finally {
      await Promise.all(children.map((child) => child.kill()));
    }
  });

  it('others wait for no longer than the lease of one that was killed', async () => {
    const lease = 3_000;
    const options: CacheEntryOptions = { lock: { lease } };
    const [killed, other] = [start(60_000, options), start(20, options)];
    try {
      await go(killed);
      await eventually(() => redis.get('loads:hot'));
      await go(other);
      await eventually(async () => (await redis.get('lease:{cache:hot}'))?.startsWith('1'));
      await killed.kill();
      const { values, took } = await other.says<{ values: number[]; took: number }>('done');
      expect(values).toEqual([other.pid]);
      expect(took).toBeLessThan(lease + 600);
      expect(await redis.get('loads:hot')).toBe('2');
    } finally {
      await Promise.all([killed, other].map((child) => child.kill()));
    }
  });
});
