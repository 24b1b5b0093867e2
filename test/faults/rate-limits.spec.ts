import { Redis } from 'ioredis';
import { type LockBackend, PrimitiveBackendError, RateLimiter, type RateLimitOptions, redis } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { replacingPrimitives } from '../support/primitives-with.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

describe('an outage', () => {
  type OnFailure = NonNullable<RateLimitOptions['onFailure']>;
  const TIMEOUT = 500;
  const CALLS = 40;

  let server: RedisServer;
  let proxy: FaultProxy;
  let app: LockApp;
  let limiter: RateLimiter;
  /** How many calls were sent to the store. */
  let sent: number;

  /** A backend that counts them. */
  function counted(url: string): LockBackend {
    return replacingPrimitives(redis(url), ({ rateLimits }) => ({
      rateLimits: {
        take: (request) => {
          sent += 1;
          return rateLimits.take(request);
        },
      },
    }));
  }

  beforeEach(async () => {
    server = await startRedisServer();
    proxy = await FaultProxy.start(server.port);
    const backend = counted(`redis://127.0.0.1:${proxy.port}`);
    app = await startLockApp({ backend, commandTimeout: TIMEOUT });
    limiter = app.app.get(RateLimiter);
  });
  afterEach(async () => {
    server.process.resume();
    await app.close();
    await proxy.stop();
    await server.stop();
  });

  const limit = (onFailure: OnFailure, more: Partial<RateLimitOptions> = {}) =>
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

  /** Waits until the store has answered a call in time. On a busy machine, it may have counted calls before. */
  async function served(): Promise<void> {
    let calls = 0;
    const answer = await eventually(async () => {
      calls += 1;
      const taken = await limiter.take('key', limit('closed')).catch(() => undefined);
      return taken?.decidedBy === 'store' ? taken : undefined;
    });
    expect(answer.remaining).toBeLessThan(10);
    expect(answer.remaining).toBeGreaterThanOrEqual(10 - calls);
  }

  const freeze = async () => server.process.pause();
  const refuse = async () => proxy.refuse();
  const thaw = async () => server.process.resume();
  const accept = async () => proxy.accept();

  describe.each([
    ['a server that answers nothing', freeze, thaw],
    ['connections that are refused', refuse, accept],
  ] as const)('%s', (_what, begin, end) => {
    it.each<[OnFailure, Omit<Awaited<ReturnType<typeof outcomesOf>>, never>]>([
      ['open', { allowed: CALLS, denied: 0, rejected: 0, decidedBy: ['nobody'] }],
      ['closed', { allowed: 0, denied: 0, rejected: CALLS, decidedBy: [] }],
      ['local', { allowed: 10, denied: CALLS - 10, rejected: 0, decidedBy: ['process'] }],
    ])('%s: calls get their answer, and do not wait one by one', async (onFailure, expected) => {
      await served();
      await begin();
      sent = 0;
      expect(await outcomesOf(limit(onFailure))).toEqual(expected);
      // As many as open the circuit breaker.
      expect(sent).toBeLessThanOrEqual(3);
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
    const increment = (onFailure: OnFailure) =>
      limiter.throttlerStorage({ onFailure }).increment('key', 60_000, 1, 60_000, 'default');
    await increment('local');
    await freeze();
    expect([await increment('local'), await increment('local')].map(({ isBlocked }) => isBlocked)).toEqual([
      false,
      true,
    ]);
    expect([await increment('open'), await increment('open')].map(({ isBlocked }) => isBlocked)).toEqual([
      false,
      false,
    ]);
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
});

describe('what Redis keeps', () => {
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
      'rate:{throttler:nest-redis-lock:default:key}:hits',
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
    const key = 'rate:{throttler:nest-redis-lock:default:key}:hits';
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
});
