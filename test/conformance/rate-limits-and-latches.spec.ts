import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  CountDownLatch,
  LatchNotDefinedError,
  LatchTimeoutError,
  PrimitiveConfigError,
  PrimitiveKeyError,
  RateLimiter,
  type RateLimitOptions,
} from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import {
  apps,
  eachPrimitiveBackend,
  PRIMITIVE_WORLDS,
  type PrimitiveWorld,
  startWith,
} from './each-primitive-backend.js';

/** No unit comes back while a test runs. */
const TEN: RateLimitOptions = { limit: 10, per: '10h' };

describe.each(Object.entries(PRIMITIVE_WORLDS))('rate limits on %s', (_name, start) => {
  let world: PrimitiveWorld;
  let app: LockApp;
  let limiter: RateLimiter;
  let key: string;

  beforeAll(async () => {
    world = await start();
    app = await startLockApp({ ...world.options(), prefix: 'shop' });
    limiter = app.app.get(RateLimiter);
  });
  beforeEach(() => {
    key = randomUUID();
  });
  afterAll(async () => {
    await app.close();
    await world.stop();
  });

  const allowedOf = async (calls: number, options: RateLimitOptions) => {
    const decisions = await Promise.all(Array.from({ length: calls }, () => limiter.take(key, options)));
    return decisions.filter(({ allowed }) => allowed).length;
  };

  it('counts down, then denies and says when to come back', async () => {
    const first = await limiter.take(key, TEN);
    expect(first).toMatchObject({ allowed: true, limit: 10, remaining: 9, retryAfter: 0, decidedBy: 'store' });
    expect(first.resetAfter).toBe(3_600_000);
    expect(await allowedOf(9, TEN)).toBe(9);
    const denied = await limiter.take(key, TEN);
    expect(denied).toMatchObject({ allowed: false, remaining: 0 });
    expect(denied.retryAfter).toBeGreaterThan(3_500_000);
    expect(denied.retryAfter).toBeLessThanOrEqual(3_600_000);
    expect(denied.resetAfter).toBeLessThanOrEqual(36_000_000);
    expect(denied.states).toEqual([
      {
        limit: 10,
        per: 36_000_000,
        burst: 10,
        remaining: 0,
        nextAfter: denied.retryAfter,
        resetAfter: denied.resetAfter,
      },
    ]);
  });

  it('allows as many of simultaneous calls as there are units', async () => {
    expect(await allowedOf(100, TEN)).toBe(10);
    expect(await allowedOf(1, TEN)).toBe(0);
  });

  it('gives units back one by one, after the time that it told', async () => {
    const options: RateLimitOptions = { limit: 4, per: '8s', burst: 2 };
    const began = performance.now();
    expect(await allowedOf(3, options)).toBe(2);
    const { retryAfter } = await limiter.take(key, options);
    expect(retryAfter).toBeLessThanOrEqual(2_000);
    await eventually(async () => (await limiter.take(key, options)).allowed);
    expect(performance.now() - began).toBeGreaterThan(1_990);
    expect((await limiter.peek(key, options)).remaining).toBeLessThanOrEqual(1);
  });

  it('takes the cost of a call, or nothing', async () => {
    expect((await limiter.take(key, { ...TEN, cost: 7 })).remaining).toBe(3);
    const denied = await limiter.take(key, { ...TEN, cost: 5 });
    expect(denied).toMatchObject({ allowed: false, remaining: 3 });
    expect(denied.retryAfter).toBeGreaterThan(7_000_000);
    expect((await limiter.take(key, { ...TEN, cost: 3 })).allowed).toBe(true);
  });

  it('takes of several limits all or nothing, and answers by the tightest', async () => {
    const [wide, narrow] = [
      { limit: 10, per: '10h' },
      { limit: 3, per: '1h' },
    ] as const;
    expect(await allowedOf(5, { limits: [wide, narrow] })).toBe(3);
    const denied = await limiter.take(key, { limits: [wide, narrow] });
    expect(denied).toMatchObject({ allowed: false, limit: 3, remaining: 0 });
    expect(denied.states.map(({ remaining }) => remaining)).toEqual([7, 0]);
    expect((await limiter.peek(key, wide)).remaining).toBe(7);
  });

  it('keeps the limits of one key apart', async () => {
    expect(await allowedOf(11, TEN)).toBe(10);
    expect((await limiter.take(key, { limit: 1, per: '1h' })).allowed).toBe(true);
    expect((await limiter.take(key, { limit: 10, per: '10h', burst: 1 })).allowed).toBe(true);
  });

  it('counts keys of any characters apart', async () => {
    const begins = ['', '}', '%7D', '%257D', '{tag}', ' ', ':', 'ü'].map((begin) => begin + key);
    const keys = [...begins, '__proto__', 'constructor', `${key}\n1/3600000/1`, `${key}}:1/3600000/1`];
    for (const each of keys) expect((await limiter.take(each, { limit: 1, per: '1h' })).allowed).toBe(true);
    for (const each of keys) expect((await limiter.take(each, { limit: 1, per: '1h' })).allowed).toBe(false);
  });

  it.each<[string, RateLimitOptions]>([
    ['a unit each microsecond', { limit: 100_000_000, per: '100s', cost: 100_000_000 }],
    ['one unit in 90 years', { limit: 1, per: '32850d' }],
    ['a burst far above the limit', { limit: 1, per: '1h', burst: 100_000, cost: 100_000 }],
    ['a unit each millisecond', { limit: 1, per: 1, burst: 1 }],
    [
      'eight limits',
      { limits: Array.from({ length: 8 }, (_, index) => ({ limit: 1, per: `${index + 1}h` as const })) },
    ],
  ])('counts %s', async (_what, options) => {
    const first = await limiter.take(key, options);
    expect(first).toMatchObject({ allowed: true, remaining: 0, decidedBy: 'store' });
    expect(first.resetAfter).toBeGreaterThan(0);
    if (options.per !== 1) expect((await limiter.take(key, options)).allowed).toBe(false);
    await limiter.reset(key, options);
    expect((await limiter.take(key, options)).allowed).toBe(true);
  });

  it('peeks without taking', async () => {
    expect(await limiter.peek(key, TEN)).toMatchObject({ allowed: true, remaining: 10, resetAfter: 0 });
    await limiter.take(key, { ...TEN, cost: 10 });
    expect(await limiter.peek(key, TEN)).toMatchObject({ allowed: false, remaining: 0 });
    expect((await limiter.peek(key, TEN)).retryAfter).toBeGreaterThan(0);
  });

  it('gives all units back with reset', async () => {
    const several: RateLimitOptions = {
      limits: [
        { limit: 1, per: '1h' },
        { limit: 2, per: '2h' },
      ],
    };
    expect(await allowedOf(2, several)).toBe(1);
    await limiter.reset(key, several);
    expect(await allowedOf(2, several)).toBe(1);
  });

  it('rejects with the time to wait where a call consumes', async () => {
    expect(await limiter.consume(key, { limit: 1, per: '1h' })).toMatchObject({ allowed: true });
    const refused = limiter.consume(key, { limit: 1, per: '1h' });
    await expect(refused).rejects.toMatchObject({
      code: 'RATE_LIMIT_EXCEEDED',
      statusCode: 429,
      keys: [key],
      limit: 1,
    });
    const { retryAfter } = (await refused.catch((error: unknown) => error)) as { retryAfter: number };
    expect(retryAfter).toBeGreaterThan(3_500_000);
  });

  it('spends a local share, and not one unit more than the limit', async () => {
    const options: RateLimitOptions = { limit: 50, per: '50h', localShare: 7 };
    expect(await allowedOf(40, options)).toBe(40);
    expect(await allowedOf(30, options)).toBe(10);
    expect(await limiter.take(key, options)).toMatchObject({ allowed: false, remaining: 0 });
    await limiter.reset(key, options);
    expect(await allowedOf(51, options)).toBe(50);
  });

  describe('as the storage of a throttler', () => {
    const hit = (limit: number, block = 60_000, window = 60_000) =>
      limiter.throttlerStorage().increment(key, window, limit, block, 'default');

    it('counts hits in a window, and blocks beyond the limit', async () => {
      const [first, second, third, fourth] = [await hit(2), await hit(2), await hit(2, 30_000), await hit(2, 30_000)];
      expect(first).toEqual({ totalHits: 1, isBlocked: false, timeToExpire: 60, timeToBlockExpire: 0 });
      expect(second).toMatchObject({ totalHits: 2, isBlocked: false, timeToBlockExpire: 0 });
      expect(third).toEqual({ totalHits: 3, isBlocked: true, timeToExpire: 30, timeToBlockExpire: 30 });
      expect(fourth).toMatchObject({ totalHits: 3, isBlocked: true });
      for (const left of [fourth.timeToExpire, fourth.timeToBlockExpire]) expect(left).toBeGreaterThan(15);
    });

    it('blocks until the window ends where `blockDuration` is 0', async () => {
      await hit(1, 0);
      await sleep(1_100);
      const beyond = await hit(1, 0);
      expect(beyond).toMatchObject({ totalHits: 2, isBlocked: true });
      expect(beyond.timeToBlockExpire).toBeLessThan(60);
      expect(beyond.timeToBlockExpire).toBe(beyond.timeToExpire);
      expect(await hit(2, -1, 60_000)).toMatchObject({ totalHits: 3, isBlocked: true });
      expect((await hit(10, 0)).isBlocked).toBe(false);
    });

    it('begins a new window after the block, and after the window', async () => {
      expect(await hit(1, 500)).toMatchObject({ totalHits: 1 });
      expect(await hit(1, 500)).toMatchObject({ isBlocked: true });
      await eventually(async () => !(await hit(10, 500, 500)).isBlocked);
      await eventually(async () => (await hit(1_000_000, 500, 500)).totalHits === 1, { every: 600 });
    });

    it.each([
      ['ttl', [Number.NaN, 5, 1]],
      ['ttl', [Infinity, 5, 1]],
      ['limit', [1_000, Number.NaN, 1]],
      ['limit', [1_000, -1, 1]],
      ['blockDuration', [1_000, 5, Infinity]],
      ['blockDuration', [1_000, 5, Number.NaN]],
      ['ttl', [10n as never, 5, 1]],
      ['limit', [1_000, '5' as never, 1]],
      ['blockDuration', [1_000, 5, Symbol('b') as never]],
    ] as const)('refuses a %s that is no number of its kind: %p', async (option, [ttl, limit, block]) => {
      const refused = limiter.throttlerStorage().increment(key, ttl, limit, block, 'default');
      await expect(refused).rejects.toMatchObject({
        code: 'PRIMITIVE_CONFIG',
        message: expect.stringContaining(option),
      });
      expect((await hit(5)).totalHits).toBe(1);
    });

    it('counts under an empty key, and an empty name of a throttler', async () => {
      const storage = limiter.throttlerStorage();
      const name = key.slice(-8);
      expect((await storage.increment('', 60_000, 5, 60_000, name)).totalHits).toBe(1);
      expect((await storage.increment(name, 60_000, 5, 60_000, '')).totalHits).toBe(1);
      expect((await storage.increment('', 60_000, 5, 60_000, name)).totalHits).toBe(2);
    });

    it.each([
      [7, 'default'],
      [undefined, 'default'],
      ['\ud800', 'default'],
      ['user', Symbol('default')],
    ])('refuses to count under what is no text: %p, %p', async (part, throttler) => {
      const refused = limiter.throttlerStorage().increment(part as never, 1_000, 5, 1, throttler as never);
      await expect(refused).rejects.toMatchObject({ code: 'PRIMITIVE_KEY' });
    });

    it.each([null, 5, 'local'])('refuses %p as its options', (options) => {
      expect(() => limiter.throttlerStorage(options as never)).toThrow(
        /Option "options" is .*; give an object such as/,
      );
    });

    it('counts the throttlers of one key apart', async () => {
      const storage = limiter.throttlerStorage();
      await storage.increment(key, 60_000, 5, 60_000, 'short');
      expect((await storage.increment(key, 60_000, 5, 60_000, 'long')).totalHits).toBe(1);
    });
  });
});

eachPrimitiveBackend('CountDownLatch', () => {
  let one: CountDownLatch;
  let two: CountDownLatch;

  beforeAll(() => {
    [one, two] = [apps[0].app.get(CountDownLatch), apps[1].app.get(CountDownLatch)];
  });

  it('opens for all who wait when the last arrival is there', async () => {
    await one.define('open', { count: 3, ttl: '1m' });
    let opened = 0;
    const waiting = [one, two, two].map(async (latch) => {
      await latch.await('open', { wait: '30s' });
      opened += 1;
    });
    expect(await two.countDown('open')).toBe(2);
    expect(await one.countDown('open')).toBe(1);
    await sleep(100);
    expect(opened).toBe(0);
    expect(await two.count('open')).toBe(1);
    expect(await two.countDown('open')).toBe(0);
    await Promise.all(waiting);
    expect(await one.count('open')).toBe(0);
  });

  it('is open at once for those who come later, and takes further arrivals without effect', async () => {
    await one.define('late', { count: 1, ttl: '1m' });
    await one.countDown('late');
    await two.await('late', { wait: 0 });
    expect(await two.countDown('late')).toBe(0);
    expect(await two.count('late')).toBe(0);
  });

  it('counts an arrival with the same id once', async () => {
    await one.define('ids', { count: 2, ttl: '1m' });
    expect(await one.countDown('ids', 'chunk 1')).toBe(1);
    expect(await two.countDown('ids', 'chunk 1')).toBe(1);
    expect(await two.countDown('ids', 'chunk 2')).toBe(0);
    expect(await one.countDown('ids', 'chunk 1')).toBe(0);
  });

  it('may be defined by every process, with the same count', async () => {
    await one.define('defined', { count: 2, ttl: '1m' });
    await one.countDown('defined');
    await two.define('defined', { count: 2, ttl: '1m' });
    expect(await one.count('defined')).toBe(1);
    const other = two.define('defined', { count: 3, ttl: '1m' });
    await expect(other).rejects.toThrow('Option "count" is 3; give 2, as latch "defined" has it');
  });

  it('lets calls wait before it is defined', async () => {
    const waiting = two.await('later', { wait: '30s' });
    await sleep(50);
    await one.define('later', { count: 1, ttl: '1m' });
    await one.countDown('later');
    await waiting;
  });

  it('refuses an arrival before it is defined', async () => {
    expect(await one.count('undefined')).toBeNull();
    await expect(one.countDown('undefined')).rejects.toBeInstanceOf(LatchNotDefinedError);
  });

  it('ends a wait with an error after `wait`, and with the reason of its signal', async () => {
    await one.define('wait', { count: 2, ttl: '1m' });
    await one.countDown('wait');
    const error: unknown = await two.await('wait', { wait: 150 }).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LatchTimeoutError);
    expect(error).toMatchObject({ code: 'LATCH_TIMEOUT', statusCode: 503, remaining: 1 });
    expect((error as LatchTimeoutError).waited).toBeGreaterThanOrEqual(150);
    await expect(two.await('wait', { wait: 0 })).rejects.toBeInstanceOf(LatchTimeoutError);
    await expect(two.await('nobody', { wait: 0 })).rejects.toThrow(
      /^Latch "nobody" was not open after a wait of \d+ ms: it was not defined, or its ttl is over$/,
    );
    const controller = new AbortController();
    const waiting = two.await('wait', { wait: Infinity, signal: controller.signal });
    setTimeout(() => controller.abort(new Error('enough')), 20);
    await expect(waiting).rejects.toThrow('enough');
  });

  it('wakes by a message, before it would be looked at again', async () => {
    let [looks, heard, foundAfterMessage] = [0, false, false];
    await using app = await startWith(({ latches }) => ({
      latches: {
        look: async (name, process) => {
          const after = heard;
          const state = await latches.look(name, process);
          looks += 1;
          if (state?.remaining === 0) foundAfterMessage = after;
          return state;
        },
        listen: (listener) => {
          const onOpen = (name: string) => {
            heard = true;
            listener.onOpen(name);
          };
          latches.listen({ ...listener, onOpen });
        },
      },
    }));
    let hops = 0;
    // Of the first ones, the channel may not be open yet, or a look may be under way.
    await eventually(async () => {
      const name = `hop ${(hops += 1)}`;
      [looks, heard] = [0, false];
      await one.define(name, { count: 1, ttl: '1m' });
      const waiting = app.app.get(CountDownLatch).await(name, { wait: '30s' });
      await eventually(() => looks > 0);
      await one.countDown(name);
      await waiting;
      return foundAfterMessage;
    });
  });

  it('is gone after its ttl, which each arrival starts again', async () => {
    await one.define('ttl', { count: 3, ttl: 2_000 });
    await sleep(1_200);
    await one.countDown('ttl');
    await sleep(1_200);
    expect(await one.count('ttl')).toBe(2);
    await eventually(async () => (await one.count('ttl')) === null);
    await one.define('ttl', { count: 1, ttl: 2_000 });
    expect(await one.count('ttl')).toBe(1);
  });

  it('refuses wrong keys and options by name', async () => {
    await expect(one.await('')).rejects.toBeInstanceOf(PrimitiveKeyError);
    const wrong = async (call: Promise<unknown>, message: string) => {
      const error: unknown = await call.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(PrimitiveConfigError);
      expect((error as Error).message).toContain(message);
    };
    await wrong(one.define('wrong', {} as never), '"count" is undefined');
    await wrong(one.define('wrong', { count: 1 } as never), '"ttl" is undefined');
    await wrong(one.define('wrong', { count: 1, ttl: 99 }), '"ttl" is 99');
    await wrong(one.await('wrong', { wait: -1 }), '"wait" is -1');
    await wrong(one.await('wrong', { until: 1 } as never), 'Unknown latch option "until"');
    await wrong(one.countDown('wrong', ''), '"arrivalId" is ""');
    await wrong(one.countDown('wrong', 'id', { backends: 'other' } as never), 'Unknown latch option "backends"');
    await wrong(one.count('wrong', { backend: 5 } as never), '"backend" is 5');
    await wrong(one.count('wrong', null as never), '"options" is null');
  });
});
