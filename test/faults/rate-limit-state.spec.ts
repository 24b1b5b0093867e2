import { Redis } from 'ioredis';
import { RateLimiter, type RateLimitOptions } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';

const TEN: RateLimitOptions = { limit: 10, per: '10h', onFailure: 'closed' };
const KEY = 'rate:{key}:10/36000000/10';

let server: RedisServer;
let proxy: FaultProxy;
let client: Redis;
let app: LockApp;
let limiter: RateLimiter;

beforeAll(async () => {
  server = await startRedisServer();
  proxy = await FaultProxy.start(server.port);
  client = new Redis(server.url);
  client.on('error', () => {});
  app = await startLockApp({ redis: `redis://127.0.0.1:${proxy.port}` });
  limiter = app.app.get(RateLimiter);
});
beforeEach(() => client.flushall());
afterAll(async () => {
  await app.close();
  client.disconnect();
  await proxy.stop();
  await server.stop();
});

const allowedOf = async (calls: number, options = TEN) => {
  const decisions = await Promise.all(Array.from({ length: calls }, () => limiter.take('key', options)));
  return decisions.filter(({ allowed }) => allowed).length;
};

/** What a clock that has stepped back leaves: a time in the key that is far ahead. */
const stepClockBack = async (key: string, days: number) => {
  const [seconds] = await client.time();
  await client.set(key, String((Number(seconds) + days * 86_400) * 1_000_000), 'PX', days * 86_400_000);
};

it('calls of one turn share a command', async () => {
  await limiter.take('warm', TEN);
  const before = await commandsOf('evalsha');
  await Promise.all(Array.from({ length: 100 }, (_, index) => limiter.take(`key:${index}`, TEN)));
  expect((await commandsOf('evalsha')) - before).toBeLessThanOrEqual(10);
});

it('every key has an expiry, which ends when all units are back', async () => {
  await limiter.take('key', TEN);
  await limiter.take('key', {
    limits: [
      { limit: 5, per: '1m' },
      { limit: 100, per: '1d' },
    ],
    cost: 2,
  });
  await limiter.throttlerStorage().increment('key', 60_000, 1, 60_000, 'default');
  await limiter.throttlerStorage().increment('key', 60_000, 1, 30_000, 'default');
  const keys = await client.keys('rate:*');
  expect(keys.toSorted()).toEqual([
    'rate:{key}:10/36000000/10',
    'rate:{key}:100/86400000/100',
    'rate:{key}:5/60000/5',
    'rate:{throttler:default:key}:hits',
  ]);
  const longest = [3_600_001, 1_728_001, 24_001, 30_000];
  for (const [index, key] of keys.toSorted().entries()) {
    const left = await client.pttl(key);
    expect(left).toBeGreaterThan((longest[index] as number) - 20_000);
    expect(left).toBeLessThanOrEqual(longest[index] as number);
  }
  await limiter.take('short', { limit: 10, per: '1s' });
  await eventually(async () => (await client.exists('rate:{short}:10/1000/10')) === 0);
});

it('a key lasts for a second at least', async () => {
  // Each call takes 1 ms of the limit, and is under way for about as long.
  const lasts = async () => {
    await limiter.take('short', { limit: 1_000, per: '1s' });
    return (await client.pttl('rate:{short}:1000/1000/1000')) > 500;
  };
  await eventually(lasts);
});

it('a window or a block that lost its expiry ends nevertheless', async () => {
  const key = 'rate:{throttler:default:key}:hits';
  const count = (blockDuration: number) =>
    limiter.throttlerStorage().increment('key', 60_000, 2, blockDuration, 'default');
  await count(0);
  await client.persist(key);
  expect(await count(0)).toMatchObject({ totalHits: 2, timeToExpire: 60, isBlocked: false });
  expect(await client.pttl(key)).toBeGreaterThan(0);
  expect(await count(30_000)).toMatchObject({ totalHits: 3, isBlocked: true });
  await client.persist(key);
  expect(await count(30_000)).toMatchObject({ totalHits: 3, timeToBlockExpire: 30, isBlocked: true });
  expect(await client.pttl(key)).toBeGreaterThan(0);
});

it('a clock that stepped back costs one empty burst, not the length of the step', async () => {
  const options: RateLimitOptions = { limit: 4, per: '4s', onFailure: 'closed' };
  await stepClockBack('rate:{key}:4/4000/4', 1);
  const denied = await limiter.take('key', options);
  expect(denied).toMatchObject({ allowed: false, remaining: 0 });
  expect(denied.retryAfter).toBeLessThanOrEqual(1_000);
  await eventually(async () => (await limiter.take('key', options)).allowed, { within: 10_000 });
  expect(await client.pttl('rate:{key}:4/4000/4')).toBeLessThanOrEqual(4_001);
});

it('a peek at such a key tells no longer time', async () => {
  await stepClockBack(KEY, 30);
  expect((await limiter.peek('key', TEN)).resetAfter).toBe(36_000_000);
});

it('a foreign value in the key counts as none', async () => {
  await client.set(KEY, 'foreign');
  expect(await allowedOf(11)).toBe(10);
});

it('the limit holds across SCRIPT FLUSH and cut connections', async () => {
  expect(await allowedOf(4)).toBe(4);
  await client.script('FLUSH');
  expect(await allowedOf(3)).toBe(3);
  proxy.reset();
  expect(await allowedOf(20)).toBe(3);
});

it('a call whose reply was lost is sent again, and counts at most twice', async () => {
  expect(await allowedOf(1)).toBe(1);
  const lost = proxy.lose('rate:', true);
  expect(await limiter.take('key', TEN)).toMatchObject({ allowed: true, remaining: 7 });
  await lost;
  expect(await allowedOf(10)).toBe(7);
});

it('a restart without persistence gives all units back, and the limit holds again', async () => {
  expect(await allowedOf(20)).toBe(10);
  const { port } = server;
  await server.stop();
  server = await startRedisServer({ port });
  await eventually(async () => (await limiter.peek('key', TEN).catch(() => undefined))?.remaining === 10);
  expect(await allowedOf(20)).toBe(10);
});

async function commandsOf(name: string): Promise<number> {
  const stats = await client.info('commandstats');
  return Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
}
