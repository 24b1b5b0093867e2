import { Redis } from 'ioredis';
import { type BloomFilterOptions, CacheBackendError, CacheConfigError } from 'nest-redis-lock';
import type { CacheStore } from 'nest-redis-lock/backend';
import { RedisCacheKeys } from '../../../../lib/backends/redis/cache/redis-cache-keys.js';
import { RedisCacheBits } from '../../../../lib/backends/redis/cache/redis-collections.js';
import { ScriptRunner } from '../../../../lib/backends/redis/connection/script-runner.js';
import { BloomFilter, BloomShape } from '../../../../lib/cache/store/bloom-filter.js';
import { StoreCalls } from '../../../../lib/cache/store/store-calls.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { RecordingLogger } from '../../../support/recording-logger.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

const AT_ONCE = { settle: 0 };

let server: RedisServer;
let process1: FilterProcess;
let process2: FilterProcess;

/** What a process needs for filters. */
class FilterProcess {
  readonly client: Redis;
  readonly keys = new RedisCacheKeys('shop');
  private readonly calls: StoreCalls;

  constructor(url: string) {
    this.client = new Redis(url, { maxRetriesPerRequest: 0, retryStrategy: () => 50, disconnectTimeout: 50 });
    this.client.on('error', () => {});
    const store = {
      bits: new RedisCacheBits(new ScriptRunner(this.client), this.keys),
      ping: () => this.client.ping(),
    };
    const options = { commandTimeout: 1_000, breaker: { errors: 5, open: 1_000 } };
    this.calls = new StoreCalls(store as unknown as CacheStore, options, new RecordingLogger());
  }

  filter(name: string, options: BloomFilterOptions = { capacity: 1_000 }): BloomFilter {
    return new BloomFilter(name, options, this.calls);
  }

  close(): void {
    this.calls.stop();
    this.client.disconnect();
  }
}

beforeAll(async () => {
  server = await startRedisServer();
  process1 = new FilterProcess(server.url);
  process2 = new FilterProcess(server.url);
});
afterAll(async () => {
  process1.close();
  process2.close();
  await server.stop();
});

function ids(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, index) => `product:${from + index}`);
}

describe('a filter', () => {
  it.each([0.1, 0.01, 0.001])('errs about as often as it promises: %d', async (errorRate) => {
    const filter = process1.filter('rate', { capacity: 5_000, errorRate });
    await filter.rebuild(() => ids(0, 4_000), AT_ONCE);
    await filter.addAll(ids(4_000, 5_000));
    expect((await filter.mayHaveMany(ids(0, 5_000))).every(Boolean)).toBe(true);
    const wrong = (await filter.mayHaveMany(ids(5_000, 55_000))).filter(Boolean).length / 50_000;
    expect(wrong).toBeGreaterThan(errorRate / 2);
    expect(wrong).toBeLessThan(errorRate * 1.5);
  });

  it('is as large as the formulas say, and its positions spread over all of it', () => {
    const shape = new BloomShape(1_000_000, 0.01);
    expect([shape.bits, shape.bitsPerId]).toEqual([9_585_059, 7]);
    const positions = shape.positionsOfAll(ids(0, 20_000));
    expect(positions.length).toBe(140_000);
    const tenths = Array.from({ length: 10 }, () => 0);
    expect(positions.filter((each) => !Number.isInteger(each) || each < 0 || each >= shape.bits)).toEqual([]);
    for (const position of positions) {
      const tenth = Math.floor((10 * position) / shape.bits);
      tenths[tenth] = (tenths[tenth] ?? 0) + 1;
    }
    for (const count of tenths) expect(Math.abs(count / 14_000 - 1)).toBeLessThan(0.05);
  });

  it('errs as promised also when it is small', async () => {
    const filter = process1.filter('small', { capacity: 10, errorRate: 0.001 });
    let wrong = 0;
    for (let round = 0; round < 20; round++) {
      await filter.rebuild(() => ids(round * 1_000, round * 1_000 + 10), AT_ONCE);
      wrong += (await filter.mayHaveMany(ids(100_000, 101_000))).filter(Boolean).length;
    }
    expect(wrong / 20_000).toBeLessThan(0.005);
  });

  it('knows nothing until it was built, whatever is added to it', async () => {
    const filter = process1.filter('unbuilt');
    await filter.add('a');
    expect(await filter.mayHaveMany(['a', 'b'])).toEqual([true, true]);
    await filter.rebuild(() => [], AT_ONCE);
    expect(await filter.mayHave('b')).toBe(false);
    await process2.filter('unbuilt').add('b');
    expect(await filter.mayHave('b')).toBe(true);
  });

  it('knows nothing once Redis has lost it, or it was cleared', async () => {
    const filter = process1.filter('lost');
    const forget = [() => process1.client.flushall(), () => filter.clear()];
    for (const each of forget) {
      await filter.rebuild(() => ['a'], AT_ONCE);
      expect(await filter.mayHave('b')).toBe(false);
      await each();
      await filter.add('c');
      expect(await filter.mayHaveMany(['a', 'b', 'c'])).toEqual([true, true, true]);
    }
  });

  it('is another one with another capacity or error rate', async () => {
    await process1.filter('sized').rebuild(() => ['a'], AT_ONCE);
    expect(await process1.filter('sized').mayHave('b')).toBe(false);
    expect(await process1.filter('sized', { capacity: 1_001 }).mayHave('b')).toBe(true);
    expect(await process1.filter('sized', { capacity: 1_000, errorRate: 0.5 }).mayHave('b')).toBe(true);
  });

  it('is kept for its ttl', async () => {
    await process1.filter('kept', { capacity: 10, ttl: '1h' }).rebuild(() => ['a'], AT_ONCE);
    const [key = ''] = await process1.client.keys('*cache-bits:{kept:*}');
    const left = await process1.client.pttl(key);
    expect(left).toBeGreaterThan(3_590_000);
    expect(left).toBeLessThanOrEqual(3_600_000);
  });

  it.each([
    ['the name', '', { capacity: 1 }, /"name" is ""/],
    ['the capacity', 'x', { capacity: 0 }, /"capacity" is 0; give a whole number/],
    ['the capacity', 'x', { capacity: 1.5 }, /"capacity" is 1.5/],
    [
      'a capacity beyond what Redis holds',
      'x',
      { capacity: 1e9 },
      /"capacity" is 1000000000; give at most \d+ with errorRate 0.01/,
    ],
    ['the error rate', 'x', { capacity: 1, errorRate: 1 }, /"errorRate" is 1; give a number from/],
    ['the error rate', 'x', { capacity: 1, errorRate: NaN }, /"errorRate" is NaN/],
    ['the ttl', 'x', { capacity: 1, ttl: 0 }, /"ttl" is 0/],
  ])('refuses %s', (_what, name, options, message) => {
    expect(() => process1.filter(name, options)).toThrow(CacheConfigError);
    expect(() => process1.filter(name, options)).toThrow(message);
  });

  it('says that all may be there, and adds nothing, while Redis is away', async () => {
    const away = await startRedisServer();
    const lonely = new FilterProcess(away.url);
    const filter = lonely.filter('away');
    await filter.rebuild(() => ['a'], AT_ONCE);
    expect(await filter.mayHave('b')).toBe(false);
    await away.stop();
    expect(await filter.mayHave('b')).toBe(true);
    await expect(filter.add('c')).rejects.toBeInstanceOf(CacheBackendError);
    await expect(filter.rebuild(() => [], AT_ONCE)).rejects.toBeInstanceOf(CacheBackendError);
    lonely.close();
  });
});

describe('a rebuild', () => {
  it('loses no id that is added while it runs, by whatever process', async () => {
    const filter = process1.filter('concurrent', { capacity: 20_000 });
    const other = process2.filter('concurrent', { capacity: 20_000 });
    await filter.rebuild(() => ids(0, 1_000), AT_ONCE);
    const added: string[] = [];
    const over = new AbortController();
    const adding = [filter, other].map(async (each, which) => {
      for (let index = 0; !over.signal.aborted; index++) {
        const id = `added:${which}:${index}`;
        await each.add(id);
        added.push(id);
      }
    });
    await filter.rebuild(async function* () {
      for (const id of ids(500, 10_000)) yield id;
    }, AT_ONCE);
    over.abort();
    await Promise.all(adding);
    expect(added.length).toBeGreaterThan(10);
    expect((await other.mayHaveMany([...added, ...ids(500, 10_000)])).every(Boolean)).toBe(true);
    expect((await other.mayHaveMany(ids(0, 500))).filter(Boolean).length).toBeLessThan(50);
  });

  it('finds the row of an id that was added before it and became visible after', async () => {
    const filter = process1.filter('settling');
    await filter.rebuild(() => [], AT_ONCE);
    await filter.add('slow');
    const visible = ['old'];
    const begun = () => process1.client.exists('shop:cache-bits:{settling:9586:7}:rebuilder');
    const start = performance.now();
    const rebuilding = filter.rebuild(() => [...visible], { settle: 400 });
    await eventually(begun);
    await eventually(() => performance.now() - start > 200);
    visible.push('slow');
    expect(await rebuilding).toBe(true);
    expect(await filter.mayHaveMany(['old', 'slow', 'other'])).toEqual([true, true, false]);
  });

  it('answers from the filter in use until it is done', async () => {
    const filter = process1.filter('in use');
    await filter.rebuild(() => ['old'], AT_ONCE);
    const gate = new Gate();
    const reading = new Gate();
    const rebuilding = filter.rebuild(async function* () {
      yield 'new';
      reading.open();
      await gate.opened;
    }, AT_ONCE);
    await reading.opened;
    expect(await filter.mayHaveMany(['old', 'new'])).toEqual([true, false]);
    gate.open();
    await rebuilding;
    expect(await filter.mayHaveMany(['old', 'new'])).toEqual([false, true]);
  });

  it('is done by one process at a time', async () => {
    const gate = new Gate();
    const first = process1.filter('single');
    const reading = new Gate();
    const rebuilding = first.rebuild(async () => {
      reading.open();
      await gate.opened;
      return ['a'];
    }, AT_ONCE);
    await reading.opened;
    let read = false;
    const second = await process2.filter('single').rebuild(() => {
      read = true;
      return [];
    }, AT_ONCE);
    expect([second, read]).toEqual([false, false]);
    gate.open();
    expect(await rebuilding).toBe(true);
    expect(await process2.filter('single').rebuild(() => ['b'], AT_ONCE)).toBe(true);
  });

  it('that fails leaves the filter in use as it is, and can be begun again', async () => {
    const filter = process1.filter('failing');
    await filter.rebuild(() => ['a'], AT_ONCE);
    const error = new Error('database');
    const failing = filter.rebuild(async function* () {
      yield 'b';
      throw error;
    }, AT_ONCE);
    await expect(failing).rejects.toBe(error);
    expect(await filter.mayHaveMany(['a', 'b'])).toEqual([true, false]);
    expect(await filter.rebuild(() => ['b'], AT_ONCE)).toBe(true);
    expect(await filter.mayHaveMany(['a', 'b'])).toEqual([false, true]);
  });

  it('is lost when the filter is cleared meanwhile', async () => {
    const filter = process1.filter('cleared');
    const rebuilding = filter.rebuild(async () => {
      await process2.filter('cleared').clear();
      return ['a'];
    }, AT_ONCE);
    await expect(rebuilding).rejects.toThrow(/"cleared".* Redis lost the new filter, or it was cleared; rebuild again/);
    expect(await filter.mayHave('b')).toBe(true);
  });

  it('refuses a time to settle that is none', async () => {
    await expect(process1.filter('x').rebuild(() => [], { settle: -1 })).rejects.toThrow(/"settle" is -1/);
  });
});
