import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import getPort from 'get-port';
import { Redis } from 'ioredis';
import { type Lock, LockBackendError, LockLostError, LockTimeoutError } from 'nest-redis-lock';
import { DrivenClock } from '../../../support/driven-clock.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { RENEWED_OFTEN, renewedAgain } from '../../../support/renewals.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('a server', () => {
  /** What a client of another language runs to release: the script of redis.io. */
  const COMPARE_AND_DELETE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`;

  let server: RedisServer;
  let app: LockApp;
  let plain: Redis;

  beforeAll(async () => {
    server = await startRedisServer();
    app = await startLockApp({ redis: server.url });
    plain = new Redis(server.url);
  });
  afterAll(async () => {
    plain.disconnect();
    await app.close();
    await server.stop();
  });

  async function commandCalls(): Promise<number> {
    const stats = await plain.info('commandstats');
    const calls = [...stats.matchAll(/cmdstat_(?:evalsha|eval):calls=(\d+)/g)];
    return calls.reduce((sum, [, count]) => sum + Number(count), 0);
  }

  describe('the keys', () => {
    it('are literally lock:{name}, with the owner as the value, and all expire', async () => {
      const lock = await app.locks.acquire('order:7', { ttl: 5_000 });
      expect(await plain.get('lock:{order:7}')).toBe(lock.owner);
      expect(await plain.type('lock:{order:7}')).toBe('string');
      expect(await plain.pttl('lock:{order:7}')).toBeGreaterThan(4_000);
      const keys = await plain.keys('*order:7*');
      expect(keys.toSorted()).toEqual(['lock:{order:7}', 'lock:{order:7}:fence']);
      for (const key of keys) expect(await plain.pttl(key)).toBeGreaterThan(0);
      await lock.release();
      expect(await plain.exists('lock:{order:7}')).toBe(0);
    });

    it('stand behind the prefix, and apart from those of another', async () => {
      await using shop = await startLockApp({ redis: server.url, prefix: 'shop' });
      const lock = await shop.locks.acquire('a');
      expect(await plain.get('shop:lock:{a}')).toBe(lock.owner);
      expect(await app.locks.isLocked('a')).toBe(false);
      await lock.release();
    });

    it.each([
      ['a{b', 'lock:{a{b}'],
      ['a}b', 'lock:{a}b}'],
      ['{t}:x', 'lock:{{t}:x}'],
      ['}x', 'lock:{%7Dx}'],
      ['ü \n"%', 'lock:{ü \n"%}'],
    ])('are well formed for the name %j', async (name, key) => {
      const lock = await app.locks.acquire(name);
      expect(await plain.get(key)).toBe(lock.owner);
      expect(await app.locks.tryAcquire(name)).toBeNull();
      await lock.release();
      expect(await plain.exists(key)).toBe(0);
    });

    it('use a new owner for every grant', async () => {
      const owners = new Set<string>();
      for (let round = 0; round < 5; round++) {
        const lock = await app.locks.acquire('owners');
        owners.add(lock.owner);
        await lock.release();
      }
      expect(owners.size).toBe(5);
    });
  });

  describe('a plain SET NX PX client of another language', () => {
    it('is excluded by ours', async () => {
      const lock = await app.locks.acquire('shared');
      expect(await plain.set('lock:{shared}', randomUUID(), 'PX', 1_000, 'NX')).toBeNull();
      expect(await plain.eval(COMPARE_AND_DELETE, 1, 'lock:{shared}', randomUUID())).toBe(0);
      await lock.release();
      expect(await plain.set('lock:{shared}', randomUUID(), 'PX', 1_000, 'NX')).toBe('OK');
      await plain.del('lock:{shared}');
    });

    it('excludes ours, which get in when it is done or dead', async () => {
      const token = randomUUID();
      await plain.set('lock:{theirs}', token, 'PX', 60_000, 'NX');
      expect(await app.locks.tryAcquire('theirs')).toBeNull();
      expect(await app.locks.inspect('theirs')).toMatchObject({ owner: token, fencingToken: null });
      const waiting = app.locks.acquire('theirs');
      await plain.eval(COMPARE_AND_DELETE, 1, 'lock:{theirs}', token);
      await (await waiting).release();
      await plain.set('lock:{theirs}', randomUUID(), 'PX', 300, 'NX');
      await (await app.locks.acquire('theirs', { wait: 2_000 })).release();
    });

    it('may have set no expiry: the wait is bounded all the same', async () => {
      await plain.set('lock:{for-ever}', 'somebody');
      const info = await app.locks.inspect('for-ever');
      expect(info?.ttl).toBe(Infinity);
      await expect(app.locks.acquire('for-ever', { wait: 100 })).rejects.toBeInstanceOf(LockTimeoutError);
      const waiting = app.locks.acquire('for-ever', { wait: 5_000 });
      await sleep(50);
      await plain.del('lock:{for-ever}');
      const lock = await waiting;
      await lock.release();
    });
  });

  describe('tokens', () => {
    it('rise also after the data set was lost', async () => {
      const before = await app.locks.acquire('flushed');
      await before.release();
      await plain.flushall();
      const after = await app.locks.acquire('flushed');
      expect(after.fencingToken).toBeGreaterThan(before.fencingToken);
      await after.release();
    });

    it('rise above what the fence holds, however far that is ahead of the clock', async () => {
      const ahead = Date.now() * 1_000 + 3_600_000_000;
      await plain.set('lock:{ahead}:fence', String(ahead), 'PX', 60_000);
      const lock = await app.locks.acquire('ahead');
      expect(lock.fencingToken).toBe(ahead);
      await lock.release();
      const next = await app.locks.acquire('ahead');
      expect(next.fencingToken).toBe(ahead + 1);
      await next.release();
    });
  });

  describe('the scripts', () => {
    it('survive SCRIPT FLUSH', async () => {
      const lock = await app.locks.acquire('flush', RENEWED_OFTEN);
      await plain.script('FLUSH');
      await renewedAgain(lock);
      await plain.script('FLUSH');
      await lock.release();
      expect(await plain.exists('lock:{flush}')).toBe(0);
    });

    it('let a lock of a foreign type spoil its own lease only', async () => {
      await plain.hset('lock:{hash}', 'field', 'value');
      await expect(app.locks.tryAcquire('hash')).rejects.toBeInstanceOf(LockBackendError);
      const [bad, good] = (await Promise.all(
        ['bad', 'good'].map((name) => app.locks.acquire(name, RENEWED_OFTEN)),
      )) as [Lock, Lock];
      await plain.del('lock:{bad}');
      await plain.hset('lock:{bad}', 'field', 'value');
      await eventually(() => !bad.held);
      expect(bad.signal.reason).toMatchObject({ reason: 'taken' });
      await renewedAgain(good);
      await good.release();
      await plain.del('lock:{bad}', 'lock:{hash}');
    });

    it('renew many locks in one call, once in each third of their ttl', async () => {
      const client = new Redis(server.url);
      const { app: nest, locks } = await startLockApp({ redis: client });
      // The first renewal also loads the script. Another application makes it, because a timer of this one that runs
      // when the clock is replaced would keep its watchdog asleep.
      await app.locks.withLock('warm', RENEWED_OFTEN, (lock) => renewedAgain(lock));
      const clock = new DrivenClock();
      clock.start();
      try {
        const names = Array.from({ length: 60 }, (_, index) => `many:${index}`);
        const held = await Promise.all(names.map((name) => locks.acquire(name, { ttl: 30_000 })));
        // Holds that last for a second open the connection for messages, for which a script is loaded.
        const taken = await commandCalls();
        await clock.eventually(async () => (await commandCalls()) > taken, { within: 2_000, every: 50 });
        const before = await commandCalls();
        /** No time passes while a command waits for its answer, which would count as a failure. */
        const renewals = async () => {
          await client.ping();
          return (await commandCalls()) - before;
        };
        for (let third = 1; third <= 4; third++) {
          await clock.pass(third === 1 ? 7_000 : 9_000);
          expect(await renewals()).toBe(third - 1);
          await clock.eventually(async () => (await renewals()) === third, { within: 3_100, every: 50 });
        }
        expect(held.every((lock) => lock.remaining() > 20_000)).toBe(true);
        await Promise.all(held.map((lock) => lock.release()));
      } finally {
        clock.stop();
        await nest.close();
        client.disconnect();
      }
    });

    it('are two for an uncontended lock: one to take it and one to give it back', async () => {
      await app.locks.withLock('warm', async () => {});
      const before = await commandCalls();
      for (let round = 0; round < 10; round++) await app.locks.withLock('lean', async () => {});
      expect((await commandCalls()) - before).toBe(20);
    });
  });

  describe('a connection that fails', () => {
    let proxy: FaultProxy;
    let client: Redis;
    let fragile: LockApp;
    let end: () => Promise<void>;

    async function open() {
      const its = await FaultProxy.start(server.port);
      const to = { host: '127.0.0.1', port: its.port, retryStrategy: () => 20, maxRetriesPerRequest: null };
      const over = new Redis(to).on('error', () => {});
      const of = await startLockApp({ redis: over, commandTimeout: 1_500 });
      await of.locks.withLock('warm', async () => {});
      const close = async () => {
        its.heal();
        await of.close();
        over.disconnect();
        await its.stop();
      };
      return { proxy: its, client: over, app: of, close };
    }

    beforeEach(async () => void ({ proxy, client, app: fragile, close: end } = await open()));
    afterEach(() => end());

    it('finds its own lock when ioredis sends the acquire again', async () => {
      const lost = proxy.lose('{resent}', true);
      const lock = await fragile.locks.acquire('resent', { wait: 0 });
      await lost;
      expect(lock.held).toBe(true);
      expect(await plain.get('lock:{resent}')).toBe(lock.owner);
      await lock.release();
      expect(await plain.exists('lock:{resent}')).toBe(0);
    });

    it('takes "gone" for released when ioredis sends the release again', async () => {
      const lock = await fragile.locks.acquire('resent-release');
      const lost = proxy.lose('{resent-release}', true);
      await lock.release();
      await lost;
      expect(await plain.exists('lock:{resent-release}')).toBe(0);
    });

    it('takes "taken" for released when ioredis sends the release again, and another process has it by then', async () => {
      const lock = await fragile.locks.acquire('resent-handed-on');
      const waiting = app.locks.acquire('resent-handed-on');
      await eventually(async () => (await plain.llen('lock:{resent-handed-on}:queue')) === 1);
      const lost = proxy.lose('{resent-handed-on}', true);
      await lock.release();
      await lost;
      const next = await waiting;
      expect(await plain.get('lock:{resent-handed-on}')).toBe(next.owner);
      await next.release();
    });

    it('lets the result of the body stand when the release is not confirmed, and sends it again', async () => {
      const result = await fragile.locks.withLock('unconfirmed', { ttl: 10_000 }, async () => {
        proxy.hold();
        return 'done';
      });
      expect(result).toBe('done');
      expect(await plain.exists('lock:{unconfirmed}')).toBe(1);
      proxy.heal();
      await eventually(async () => (await plain.exists('lock:{unconfirmed}')) === 0);
    });

    it('logs a release that was never confirmed, once', async () => {
      await fragile.locks.withLock('never', { ttl: 1_000 }, async () => proxy.hold());
      await eventually(() => fragile.logger.matching(/Release of "never" .* never confirmed/).length === 1);
    });

    it('passes the error of the body on, whatever the release does', async () => {
      const error = new Error('business');
      const failed = fragile.locks.withLock('business', { ttl: 1_000 }, async () => {
        proxy.hold();
        throw error;
      });
      await expect(failed).rejects.toBe(error);
    });

    it('gives back what is granted after its caller gave up', async () => {
      proxy.hold();
      await expect(fragile.locks.tryAcquire('late')).rejects.toBeInstanceOf(LockBackendError);
      proxy.heal();
      const next = await app.locks.acquire('late', { wait: 1_000 });
      await next.release();
      await eventually(async () => (await plain.exists('lock:{late}')) === 0);
    });

    it('gives back what is granted after its wait was cancelled', async () => {
      proxy.slow({ reply: 200 });
      const controller = new AbortController();
      const waiting = fragile.locks.acquire('cancelled', { signal: controller.signal });
      await eventually(async () => (await plain.exists('lock:{cancelled}')) === 1);
      controller.abort(new Error('gone'));
      await expect(waiting).rejects.toThrow('gone');
      await eventually(async () => (await plain.exists('lock:{cancelled}')) === 0, { within: 10_000 });
    });

    it('counts the lease from before the request was sent, so that a late answer shortens it', async () => {
      proxy.slow({ reply: 300 });
      const lock = await fragile.locks.acquire('slow', { ttl: 2_000, renew: false });
      expect(lock.remaining()).toBeLessThan(1_700);
      expect(lock.remaining()).toBeGreaterThan(300);
      expect(await plain.pttl('lock:{slow}')).toBeGreaterThan(lock.remaining());
      await lock.extend(4_000);
      expect(lock.remaining()).toBeLessThan(3_700);
      await lock.release();
    });

    it('does not hand out a lock whose lease ended before the answer came', async () => {
      proxy.slow({ reply: 300 });
      await expect(fragile.locks.acquire('stale', { ttl: 200, wait: 0 })).rejects.toBeInstanceOf(LockBackendError);
      await eventually(async () => (await plain.exists('lock:{stale}')) === 0);
    });

    it.concurrent('repeats a renewal whose connection broke, and loses nothing', async () => {
      const own = await open();
      const lock = await own.app.locks.acquire('transient', { ttl: 5_000 });
      await own.proxy.lose('{transient}', false);
      const failedAt = performance.now();
      await eventually(() => performance.now() - failedAt > 5_100);
      expect(lock.held).toBe(true);
      await lock.release();
      await own.close();
    });

    it('never renews a lock that was released, whatever was under way', async () => {
      const lock = await fragile.locks.acquire('in-flight', { ttl: 600 });
      proxy.slow({ request: 150, reply: 150 });
      await sleep(250);
      await lock.release();
      proxy.heal();
      await sleep(700);
      expect(await plain.exists('lock:{in-flight}')).toBe(0);
      expect(lock.signal.aborted).toBe(false);
    });

    it('says so once when renewals fail, and when the lock is lost by it', async () => {
      const lock = await fragile.locks.acquire('silent', { ttl: 900 });
      proxy.hold();
      await eventually(() => lock.signal.aborted);
      expect(fragile.logger.matching(/Renewal of "silent" failed/)).toHaveLength(1);
      expect(fragile.logger.matching(/"silent" lost \(expired\)/)).toHaveLength(1);
      await expect(lock.release()).rejects.toBeInstanceOf(LockLostError);
    });

    it.concurrent('is an error, and nothing worse, where the Sentinels are not there', async () => {
      const sentinels = [{ host: '127.0.0.1', port: await getPort() }];
      const redis = { sentinels, name: 'main', sentinelRetryStrategy: () => 100 };
      await using lonely = await startLockApp({ redis, commandTimeout: 300 });
      const outcome = lonely.locks.acquire('lonely', { wait: 3_500 });
      await expect(outcome).rejects.toBeInstanceOf(LockBackendError);
    });

    it.concurrent('connects anew where the server goes silent without closing the connection', async () => {
      const between = await FaultProxy.start(server.port);
      const redis = { host: '127.0.0.1', port: between.port };
      await using hearing = await startLockApp({ redis, commandTimeout: 300 });
      await hearing.locks.withLock('heard', async () => {});
      between.silence();
      await hearing.locks.withLock('heard', { wait: 9_000 }, async () => {});
      expect(await hearing.locks.isLocked('heard')).toBe(false);
      await hearing.close();
      await between.stop();
    });

    it('answers a command within commandTimeout although the client retries for ever', async () => {
      proxy.hold();
      const calls = await Promise.allSettled([
        fragile.locks.tryAcquire('x'),
        fragile.locks.inspect('x'),
        fragile.locks.isLocked('x'),
        fragile.locks.forceRelease('x'),
      ]);
      for (const call of calls) expect(call).toMatchObject({ reason: expect.any(LockBackendError) });
    });

    it('leaves the client open that it was given', async () => {
      await fragile.close();
      expect(await client.ping()).toBe('PONG');
      expect(client.listenerCount('close')).toBeLessThanOrEqual(1);
    });
  });
});

describe('keys of foreign types', () => {
  /** Keys of ours into which somebody else wrote something of another type. */

  let server: RedisServer;
  let plain: Redis;
  let app: LockApp;

  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
    app = await startLockApp({ redis: server.url });
  });
  afterAll(async () => {
    await app.close();
    plain.disconnect();
    await server.stop();
  });

  const NAMES = ['a', 'b', 'c', 'd'];

  it.each([
    ['queue', (key: string) => plain.set(key, 'foreign')],
    ['waiters', (key: string) => plain.rpush(key, 'foreign')],
    ['fence', (key: string) => plain.del(key).then(() => plain.rpush(key, 'foreign'))],
  ])('a foreign %s spoils neither a lease that is renewed with others nor a release', async (which, spoil) => {
    await plain.flushall();
    const locks = await Promise.all(NAMES.map((name) => app.locks.acquire(name, RENEWED_OFTEN)));
    await spoil(`lock:{b}:${which}`);
    await renewedAgain(...locks);
    await Promise.all(locks.map((lock) => lock.release()));
    for (const name of NAMES) expect(await plain.exists(`lock:{${name}}`)).toBe(0);
    expect(app.logger.lines).toEqual([]);
  });

  it.each([
    ['queue', 'b', 'set'],
    ['fence', 'b', 'rpush'],
  ] as const)('a foreign %s refuses its own name only, and leaves nothing locked', async (which, name, write) => {
    await plain.flushall();
    await plain.call(write, `lock:{${name}}:${which}`, 'foreign');
    const outcomes = await Promise.allSettled(NAMES.map((each) => app.locks.acquire(each, { wait: 0 })));
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
    expect(outcomes[1]).toMatchObject({
      reason: { code: 'LOCK_BACKEND', message: expect.stringContaining('WRONGTYPE') },
    });
    for (const outcome of outcomes) if (outcome.status === 'fulfilled') await outcome.value.release();
    await eventually(async () => (await plain.exists(`lock:{${name}}`)) === 0);
  });
});
