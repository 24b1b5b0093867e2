import { Redis } from 'ioredis';
import {
  PrimitiveBackendError,
  RateLimiter,
  redis,
  type OnRateLimitFailure,
  type RateLimitOptions,
} from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';

const TIMEOUT = 500;
const CALLS = 40;

let server: RedisServer;
let proxy: FaultProxy;
let app: LockApp;
let limiter: RateLimiter;

beforeEach(async () => {
  server = await startRedisServer();
  proxy = await FaultProxy.start(server.port);
  app = await startLockApp({ redis: `redis://127.0.0.1:${proxy.port}`, commandTimeout: TIMEOUT });
  limiter = app.app.get(RateLimiter);
});
afterEach(async () => {
  server.process.resume();
  await app.close();
  await proxy.stop();
  await server.stop();
});

const limit = (onFailure: OnRateLimitFailure, more: Partial<RateLimitOptions> = {}) =>
  ({ limit: 10, per: '10h', onFailure, ...more }) as RateLimitOptions;

/** One after the other: how many were allowed, and how many rejected. */
async function outcomesOf(options: RateLimitOptions, calls = CALLS) {
  const outcomes = { allowed: 0, denied: 0, rejected: 0, decidedBy: new Set<string>() };
  for (let call = 0; call < calls; call++) {
    try {
      const { allowed, decidedBy } = await limiter.take('key', options);
      outcomes.decidedBy.add(decidedBy);
      if (allowed) outcomes.allowed += 1;
      else outcomes.denied += 1;
    } catch (error) {
      expect(error).toBeInstanceOf(PrimitiveBackendError);
      outcomes.rejected += 1;
    }
  }
  return { ...outcomes, decidedBy: [...outcomes.decidedBy] };
}

const freeze = async () => server.process.pause();
const refuse = async () => proxy.refuse();
const thaw = async () => server.process.resume();
const accept = async () => proxy.accept();

describe.each([
  ['a server that answers nothing', freeze, thaw],
  ['connections that are refused', refuse, accept],
] as const)('%s', (_what, begin, end) => {
  it.each<[OnRateLimitFailure, Omit<Awaited<ReturnType<typeof outcomesOf>>, never>]>([
    ['open', { allowed: CALLS, denied: 0, rejected: 0, decidedBy: ['nobody'] }],
    ['closed', { allowed: 0, denied: 0, rejected: CALLS, decidedBy: [] }],
    ['local', { allowed: 10, denied: CALLS - 10, rejected: 0, decidedBy: ['process'] }],
  ])('%s: calls get their answer, and do not wait one by one', async (onFailure, expected) => {
    expect(await limiter.take('key', limit(onFailure))).toMatchObject({ remaining: 9, decidedBy: 'store' });
    await begin();
    const began = performance.now();
    expect(await outcomesOf(limit(onFailure))).toEqual(expected);
    expect(performance.now() - began).toBeLessThan((CALLS * TIMEOUT) / 2);
    expect(app.logger.matching(/^The store of the rate limits does not answer/).length).toBeGreaterThan(0);
    await end();
    await eventually(async () => {
      const answer = await limiter.peek('key', limit(onFailure)).catch(() => undefined);
      return answer?.decidedBy === 'store';
    });
    expect((await limiter.take('key', limit(onFailure))).remaining).toBeLessThan(9);
  });
});

it('warns once where no answer makes it go on without the store', async () => {
  await limiter.take('key', limit('open'));
  await freeze();
  expect(await limiter.take('key', limit('open'))).toMatchObject({ decidedBy: 'nobody' });
  expect(app.logger.matching(/rate limit/)).toEqual([
    expect.stringMatching(/^The store of the rate limits does not answer/),
  ]);
});

it('a local share is spent to its end while the store is away', async () => {
  const shared = limit('closed', { localShare: 5 });
  await limiter.take('key', shared);
  await freeze();
  expect(await outcomesOf(shared, 6)).toMatchObject({ allowed: 4, rejected: 2 });
});

it('what this process decided alone does not count for a call that is closed', async () => {
  await freeze();
  expect(await limiter.take('key', limit('local', { localShare: 5 }))).toMatchObject({ decidedBy: 'process' });
  await expect(limiter.take('key', limit('closed', { localShare: 5 }))).rejects.toThrow(PrimitiveBackendError);
  expect(await outcomesOf(limit('local', { localShare: 5 }), 12)).toMatchObject({ allowed: 9, denied: 3 });
  expect(await limiter.take('key', limit('open', { localShare: 5 }))).toMatchObject({ decidedBy: 'nobody' });
});

it('this process limits each backend on its own while both are away', async () => {
  const backends = { other: redis(`redis://127.0.0.1:${proxy.port}`) };
  await using both = await startLockApp({
    redis: `redis://127.0.0.1:${proxy.port}`,
    backends,
    commandTimeout: TIMEOUT,
  });
  await refuse();
  const taken = (backend?: string) =>
    both.app.get(RateLimiter).take('key', { limit: 1, per: '1h', ...(backend && { backend }) });
  for (const allowed of [true, false]) {
    expect(await taken()).toMatchObject({ allowed, decidedBy: 'process' });
    expect(await taken('other')).toMatchObject({ allowed, decidedBy: 'process' });
  }
  await accept();
});

it('calls that share a request of a local share each do what their own onFailure says', async () => {
  await freeze();
  const [closed, open, local, another] = (['closed', 'open', 'local', 'closed'] as const).map((onFailure) =>
    limiter.take('key', limit(onFailure, { localShare: 5 })),
  );
  await Promise.all([
    expect(closed).rejects.toThrow(PrimitiveBackendError),
    expect(open).resolves.toMatchObject({ decidedBy: 'nobody' }),
    expect(local).resolves.toMatchObject({ decidedBy: 'process' }),
    expect(another).rejects.toThrow(PrimitiveBackendError),
  ]);
});

it.each<[string, () => Promise<unknown>]>([
  ['take', () => limiter.take('key', limit('closed'))],
  ['take', () => limiter.consume('key', limit('closed', { localShare: 2 }))],
  ['peek', () => limiter.peek('key', limit('closed'))],
  ['reset', () => limiter.reset('key', limit('local'))],
  ['count', () => limiter.throttlerStorage({ onFailure: 'closed' }).increment('key', 1_000, 1, 1_000, 'default')],
])('a %s that gets no answer rejects with what failed, and succeeds after the outage', async (operation, call) => {
  await freeze();
  await expect(call()).rejects.toMatchObject({
    code: 'PRIMITIVE_BACKEND',
    statusCode: 503,
    message: expect.stringMatching(`The ${operation} of the rate limit "[^"]*key" failed: no answer within 500 ms`),
  });
  await thaw();
  await eventually(() =>
    call().then(
      () => true,
      () => false,
    ),
  );
});

it('calls that wait while the application ends settle at once', async () => {
  await freeze();
  const waiting = (['closed', 'local', 'open'] as const).map((each) => limiter.take('key', limit(each)));
  const settled = Promise.allSettled(waiting);
  const closed = app.close();
  const outcomes = (await settled).map((each) => (each.status === 'fulfilled' ? each.value.decidedBy : each.reason));
  expect(outcomes).toEqual([expect.any(PrimitiveBackendError), 'process', 'nobody']);
  await expect(limiter.take('key', limit('open'))).rejects.toThrow('the application has ended');
  await thaw();
  await closed;
});

it('the storage of a throttler does what its onFailure says', async () => {
  const increment = (onFailure: OnRateLimitFailure) =>
    limiter.throttlerStorage({ onFailure }).increment('key', 60_000, 1, 60_000, 'default');
  await increment('local');
  await freeze();
  expect([await increment('local'), await increment('local')].map(({ isBlocked }) => isBlocked)).toEqual([false, true]);
  expect([await increment('open'), await increment('open')].map(({ isBlocked }) => isBlocked)).toEqual([false, false]);
  await expect(increment('closed')).rejects.toThrow(PrimitiveBackendError);
});

it('an error that Redis answers counts as a failure of the store', async () => {
  const client = new Redis(server.url);
  await client.rpush('rate:{key}:10/36000000/10', 'a list');
  client.disconnect();
  expect(await limiter.take('key', limit('local'))).toMatchObject({ allowed: true, decidedBy: 'process' });
  await expect(limiter.take('key', limit('closed'))).rejects.toThrow('WRONGTYPE');
  expect(await limiter.take('another', limit('closed'))).toMatchObject({ decidedBy: 'store' });
});
