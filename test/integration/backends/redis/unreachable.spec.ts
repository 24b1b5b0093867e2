import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { inspect } from 'node:util';
import { jest } from '@jest/globals';
import getPort from 'get-port';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import {
  CacheService,
  CountDownLatch,
  LockBackendError,
  LockConfigError,
  LockReplicationError,
  memory,
  RateLimiter,
  redis,
  ScheduledJobs,
  SemaphoreService,
  type RedisConnection,
} from 'nest-redis-lock';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { leavingApps, type LockApp, startLockApp } from '../../../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('a server that cannot be reached', () => {
  /** Takes connections and closes them at once. */
  let closing: Server;
  /** Wants a password. */
  let guarded: RedisServer;
  const ports = { nothing: 0, closing: 0, guarded: 0 };
  const start = leavingApps();

  beforeAll(async () => {
    closing = createServer((socket) => socket.destroy());
    closing.listen(0, '127.0.0.1');
    await once(closing, 'listening');
    guarded = await startRedisServer();
    const admin = new Redis(guarded.url);
    await admin.config('SET', 'requirepass', 'pw');
    admin.disconnect();
    ports.nothing = await getPort();
    ports.closing = (closing.address() as { port: number }).port;
    ports.guarded = guarded.port;
  });
  afterAll(async () => {
    closing.close();
    await guarded.stop();
  });

  type Case = [what: string, options: () => RedisOptions, cause: RegExp, remedy: RegExp];
  const CASES: Case[] = [
    ['nothing listens', () => ({ port: ports.nothing }), /ECONNREFUSED/, /start Redis, or correct host and port/],
    ['no address belongs to the name', () => ({ host: 'nowhere.invalid' }), /ENOTFOUND|EAI_AGAIN/, /correct it/],
    ['the password is missing', () => ({ port: ports.guarded }), /NOAUTH/, /give username and password/],
    ['the password is wrong', () => ({ port: ports.guarded, password: 'secret' }), /WRONGPASS/, /correct username/],
    [
      'it is no Redis',
      () => ({ port: ports.closing }),
      /closed the connection|ECONNRESET|EPIPE/,
      /correct host, port and TLS/,
    ],
    ['it does not speak TLS', () => ({ port: ports.guarded, tls: {} }), /TLS|SSL|ECONNRESET|EPROTO/, /TLS there/],
  ];

  it('takes a few lines, where the log prints the error of a call with its cause', async () => {
    using app = await start({ redis: { port: ports.nothing }, commandTimeout: 400 });
    const calls: Record<string, () => Promise<unknown>> = {
      lock: () => app.locks.acquire('name', { wait: 0 }),
      job: () => app.app.get(ScheduledJobs).run('name', { atMostFor: '1m', atLeastFor: 0 }, async () => {}),
      permit: () => app.app.get(SemaphoreService).acquire('name', { permits: 1, wait: 0 }),
      limit: () => app.app.get(RateLimiter).take('name', { limit: 1, per: '1s', onFailure: 'closed' }),
      latch: () => app.app.get(CountDownLatch).count('name'),
    };
    const errors = Object.values(calls).map((call) => call().catch((caught: unknown) => caught as Error));
    for (const error of await Promise.all(errors)) {
      const printed = inspect(error);
      // One stack, that of the call; how many frames Node keeps depends on where the call failed.
      const lines = printed.split('\n').map((line) => (/^ +at /.test(line) ? 'frame' : 'text'));
      expect(lines.filter((kind, index) => kind === 'frame' && lines[index - 1] === 'text')).toHaveLength(1);
      expect(lines.filter((kind) => kind === 'text').length).toBeLessThanOrEqual(8);
      expect(printed.split('connect ECONNREFUSED')).toHaveLength(3);
      expect(Object.keys(error as Error)).not.toEqual(expect.arrayContaining(['response']));
      expect((error as Error).cause).toMatchObject({ code: 'ECONNREFUSED', cause: { syscall: 'connect' } });
    }
  });

  describe.each(CASES)('where %s', (_what, optionsOf, cause, remedy) => {
    const connections: [string, () => RedisConnection][] = [
      ['options', () => ({ host: '127.0.0.1', ...optionsOf() })],
      ['a client that retries for ever', () => patient(optionsOf())],
    ];

    it.each(connections)(
      'the warning, the error and its cause say so, with host and port: %s',
      async (_how, connect) => {
        const connection = connect();
        const { host = '127.0.0.1', port = 6379 } = optionsOf();
        using app = await start({ redis: connection, commandTimeout: 400, cache: false });
        const error = await app.locks.tryAcquire('name').catch((caught: unknown) => caught as LockBackendError);
        expect(error).toBeInstanceOf(LockBackendError);
        const [warning = ''] = await warnings(app);
        const texts = [warning, (error as LockBackendError).message, String((error as LockBackendError).cause)];
        for (const text of texts) {
          expect(text).toContain(`${host}:${port}`);
          expect(text).toMatch(cause);
          expect(text).toMatch(remedy);
          expect(text).not.toMatch(/max retries|secret|\n/);
        }
        expect(await warnings(app)).toHaveLength(1);
        if (connection instanceof Redis) connection.disconnect();
      },
    );
  });

  it('names the code of the cause, and says it of further backends and of the cache', async () => {
    const connection = { host: '127.0.0.1', port: ports.nothing };
    const options = { backend: memory(), backends: { far: redis(connection) }, cache: { redis: connection } };
    using app = await start({ ...options, commandTimeout: 400 });
    await expect(app.locks.acquire('name', { backend: 'far', wait: 0 })).rejects.toMatchObject({
      cause: { code: 'ECONNREFUSED' },
    });
    const reading = app.app.get(CacheService).get('key');
    await reading.catch(() => {});
    await eventually(() => app.logger.matching(new RegExp(`ECONNREFUSED 127.0.0.1:${ports.nothing}`)).length >= 1);
  });

  describe('of a Cluster', () => {
    const cases = CASES.filter(([what]) => /nothing listens|no address|password/.test(what));
    it.each(cases)(
      'where %s, the warning and the error say so, with host and port',
      async (_w, optionsOf, cause, remedy) => {
        const { host = '127.0.0.1', port = 6379, ...access } = optionsOf();
        const cluster = new Cluster([{ host, port }], {
          redisOptions: access as Pick<RedisOptions, 'password' | 'tls'>,
        });
        cluster.on('error', () => {});
        using app = await start({ redis: cluster, commandTimeout: 1_000, cache: false });
        const error = await app.locks
          .acquire('name', { wait: 0 })
          .catch((caught: unknown) => caught as LockBackendError);
        const [warning = ''] = await warnings(app);
        for (const text of [warning, (error as LockBackendError).message]) {
          expect(text).toContain(`${host}:${port}`);
          expect(text).toMatch(cause);
          expect(text).toMatch(remedy);
          expect(text).not.toMatch(/Failed to refresh|secret|\n/);
        }
        cluster.disconnect();
      },
    );

    it('that never answers, it says what to check', async () => {
      const cluster = new Cluster([{ host: '127.0.0.1', port: ports.guarded }], { redisOptions: { tls: {} } });
      cluster.on('error', () => {});
      using app = await start({ redis: cluster, commandTimeout: 2_000, cache: false });
      const [warning = ''] = await warnings(app);
      expect(warning).toContain(`127.0.0.1:${ports.guarded}: timeout; it does not answer: check host, port, firewall`);
      cluster.disconnect();
    });

    it('that closes each connection, it says that', async () => {
      const cluster = new Cluster([{ host: '127.0.0.1', port: ports.closing }]);
      cluster.on('error', () => {});
      using app = await start({ redis: cluster, commandTimeout: 400, cache: false });
      const failing = app.locks.acquire('name', { wait: 0 });
      await expect(failing).rejects.toThrow(new RegExp(`127.0.0.1:${ports.closing}: .*; start Redis there`));
      cluster.disconnect();
    });
  });

  describe('a client of the user', () => {
    it('still has its errors printed by nobody else than before', async () => {
      const printed = jest.spyOn(console, 'error').mockImplementation(() => {});
      const silent = new Redis({ port: ports.nothing });
      const heard = new Redis({ port: ports.nothing });
      const errors: Error[] = [];
      heard.on('error', (error) => errors.push(error));
      const backends = [redis(silent), redis(silent), redis(heard)];
      await eventually(() => errors.length > 1 && printed.mock.calls.length > 1);
      const lines = printed.mock.calls.map(([first]) => String(first));
      expect(new Set(lines)).toEqual(new Set(['[ioredis] Unhandled error event:']));
      // One line for each error, however many backends listen.
      expect(lines.length).toBeLessThanOrEqual(errors.length + 2);
      await Promise.all(backends.map((backend) => backend.close()));
      expect([silent.listenerCount('error'), heard.listenerCount('error')]).toEqual([0, 1]);
      silent.disconnect();
      heard.disconnect();
      printed.mockRestore();
    });

    it('that retries for ever keeps no call beyond its time limit, nor sends it later', async () => {
      const server = await startRedisServer();
      const client = new Redis(server.url, { maxRetriesPerRequest: null });
      client.on('error', () => {});
      await using app = await startLockApp({
        redis: client,
        commandTimeout: 300,
        cache: { defaults: { onRedisError: 'throw' } },
      });
      const cache = app.app.get(CacheService);
      await app.locks.withLock('warm', async () => cache.set('warm', 1));
      await server.stop();
      await eventually(() => client.status !== 'ready');
      const calls = () =>
        Array.from({ length: 50 }, (_, index) => [
          app.locks.acquire(`lost-${index}`, { wait: 0 }),
          cache.get(`lost-${index}`),
        ]).flat();
      for (let round = 0; round < 4; round++) {
        const outcomes = await Promise.allSettled<unknown>(calls());
        expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(['rejected']));
      }
      expect((client as unknown as { offlineQueue: { length: number } }).offlineQueue.length).toBe(0);
      await using back = await startRedisServer({ port: server.port });
      await app.locks.withLock('live', { wait: 10_000 }, async () => {});
      const look = new Redis(back.url);
      expect(await look.keys('*lost*')).toEqual([]);
      look.disconnect();
      client.disconnect();
    }, 30_000);

    it('that has not connected yet is waited for', async () => {
      await using server = await startRedisServer();
      const client = new Redis(server.url, { maxRetriesPerRequest: null });
      expect(client.status).not.toBe('ready');
      await using app = await startLockApp({ redis: client });
      expect(await app.locks.withLock('first', { wait: 0 }, async () => 'ran')).toBe('ran');
      client.disconnect();
    });
  });

  async function warnings({ logger }: LockApp): Promise<string[]> {
    await eventually(() => logger.matching(/starts without it/).length > 0);
    return logger.matching(/starts without it/);
  }

  function patient(options: RedisOptions): Redis {
    const client = new Redis({ host: '127.0.0.1', ...options, maxRetriesPerRequest: null, replyMapping: 'legacy' });
    client.on('error', () => {});
    return client;
  }
});

describe('minReplicas', () => {
  let master: RedisServer;
  let replica: RedisServer;
  let admin: Redis;

  beforeAll(async () => {
    const prompt = ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];
    master = await startRedisServer({ args: prompt });
    replica = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(master.port), ...prompt] });
    admin = new Redis(master.url);
    await eventually(async () => (await admin.info('replication')).includes('state=online'));
  });
  afterEach(() => replica.process.resume());
  afterAll(async () => {
    admin.disconnect();
    await Promise.all([master.stop(), replica.stop()]);
  });

  /** An application whose replicas have a second to confirm. */
  const appWith = (minReplicas: number) =>
    startLockApp({ backend: redis(master.url, { minReplicas }), commandTimeout: 3_000, cache: false });

  const onReplica = async (key: string) => {
    const client = new Redis(replica.url);
    try {
      return await client.get(key);
    } finally {
      client.disconnect();
    }
  };

  it('has each lock at a replica before the caller has it: alone, of several names, and handed over', async () => {
    await using one = await appWith(1);
    await using two = await appWith(1);
    const held = await one.locks.acquire('confirmed');
    expect(await onReplica('lock:{confirmed}')).toBe(held.owner);
    const waiting = two.locks.acquire('confirmed', { wait: 60_000 });
    await eventually(async () => ((await one.locks.inspect('confirmed'))?.waiting ?? 0) > 0);
    await held.release();
    const next = await waiting;
    expect(await onReplica('lock:{confirmed}')).toBe(next.owner);
    await next.release();
    await using both = await one.locks.acquire(['a', 'b']);
    expect(await onReplica('lock:{b}')).toBe(both.owner);
  });

  it('serves many callers, whose grants share a WAIT', async () => {
    await using app = await appWith(1);
    const names = Array.from({ length: 200 }, (_, index) => `many:${index}`);
    await Promise.all(names.map((name) => app.locks.withLock(name, async () => {})));
    await Promise.all(names.map(() => app.locks.withLock('hot', { wait: 60_000 }, async () => {})));
    const { calls } = /cmdstat_wait:calls=(?<calls>\d+)/.exec(await admin.info('commandstats'))?.groups ?? {};
    expect(Number(calls)).toBeLessThan(200);
  });

  it('releases a lock that too few replicas confirm in time, and says so', async () => {
    await using app = await appWith(2);
    const error: unknown = await app.locks.tryAcquire('refused').catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockReplicationError);
    expect(error).toMatchObject({ code: 'LOCK_BACKEND', statusCode: 503, keys: ['refused'], confirmed: 1, wanted: 2 });
    expect((error as Error).message).toMatch('1 of 2 replicas confirmed the grant within 1000 ms; it is released');
    await expect(app.locks.acquire(['refused', 'too'], { wait: 0 })).rejects.toBeInstanceOf(LockReplicationError);
    await eventually(async () => (await admin.exists('lock:{refused}', 'lock:{too}')) === 0);
  });

  it('tries again until a replica that stands still goes on', async () => {
    await using app = await appWith(1);
    replica.process.pause();
    const waiting = app.locks.acquire('patient', { wait: 60_000 });
    await expect(app.locks.tryAcquire('impatient')).rejects.toBeInstanceOf(LockReplicationError);
    replica.process.resume();
    const held = await waiting;
    expect(await onReplica('lock:{patient}')).toBe(held.owner);
    await held.release();
  });

  it('believes no confirmation that comes twice on the way', async () => {
    const proxy = await FaultProxy.start(master.port);
    const backend = redis(`redis://127.0.0.1:${proxy.port}`, { minReplicas: 1 });
    await using app = await startLockApp({ backend, commandTimeout: 3_000, cache: false });
    await app.locks.withLock('before', async () => {});
    let doubled = false;
    proxy.alterEach((reply) => {
      if (doubled || String(reply) !== ':1\r\n') return reply;
      doubled = true;
      return Buffer.concat([reply, Buffer.from('+OK\r\n'), reply]);
    });
    await app.locks.tryAcquire('first').catch(() => null);
    expect(doubled).toBe(true);
    replica.process.pause();
    await expect(app.locks.tryAcquire('second')).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    replica.process.resume();
    await app.locks.withLock('third', { wait: 60_000 }, async () => {});
    await app.close();
    await proxy.stop();
  });

  it('hands nothing over that no replica confirms: the waiter asks again', async () => {
    await using plain = await appWith(0);
    await using app = await appWith(1);
    const held = await plain.locks.acquire('handed over');
    const waiting = app.locks.acquire('handed over', { wait: 60_000 });
    await eventually(async () => ((await plain.locks.inspect('handed over'))?.waiting ?? 0) > 0);
    replica.process.pause();
    await held.release();
    let entered = false;
    void waiting.then(() => (entered = true));
    // It was granted the name, gave it back, and asked again.
    const first = await eventually(async () => (await plain.locks.inspect('handed over'))?.owner);
    await eventually(async () => {
      const owner = (await plain.locks.inspect('handed over'))?.owner;
      return owner !== undefined && owner !== first;
    });
    expect(entered).toBe(false);
    replica.process.resume();
    await (await waiting).release();
  });

  it('sends no WAIT by default', async () => {
    await admin.config('RESETSTAT');
    await using app = await appWith(0);
    await app.locks.withLock('plain', async () => {});
    expect(await admin.info('commandstats')).not.toMatch('cmdstat_wait');
  });

  it.each([-1, 0.5, '1', NaN])('refuses %p', (minReplicas) => {
    const make = () => redis(master.url, { minReplicas: minReplicas as number });
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow('Option "minReplicas" is');
  });

  it.each([
    [{ minReplica: 1 }, 'Unknown option of redis() "minReplica"; give any of fenceTtl, minReplicas'],
    [null, 'Option "options" is null; give an object of options of redis()'],
    [1, 'Option "options" is 1; give an object of options of redis()'],
  ])('refuses the options %p, which would ask for no replica', (options, message) => {
    const make = () => redis(master.url, options as object);
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(message);
  });

  it('refuses a Cluster', () => {
    const cluster = new Cluster([master.url], { lazyConnect: true });
    expect(() => redis(cluster, { minReplicas: 1 })).toThrow(LockConfigError);
    cluster.disconnect();
  });
});

describe('a client that refuses commands while it has no connection', () => {
  let server: RedisServer;
  beforeAll(async () => void (server = await startRedisServer()));
  afterAll(() => server.stop());

  it('is waited for at the start', async () => {
    const options = { host: '127.0.0.1', port: server.port, enableOfflineQueue: false };
    const client = new Redis(options);
    for (const connection of [options, client]) {
      await using app = await startLockApp({ redis: connection, failFast: true });
      expect(await app.locks.withLock('name', { wait: 0 }, async () => 'ran')).toBe('ran');
      expect(app.logger.lines).toEqual([]);
    }
    client.disconnect();
  });

  it('fails a call at once after its connection was lost', async () => {
    const lost = await startRedisServer();
    const client = new Redis({ host: '127.0.0.1', port: lost.port, enableOfflineQueue: false }).on('error', () => {});
    // What waits for the connection would wait for this long; the end of the application waits for the lease.
    await using app = await startLockApp({
      redis: client,
      cache: false,
      commandTimeout: '1h',
      defaults: { ttl: '1s' },
    });
    await app.locks.withLock('name', async () => {});
    const reconnecting = once(client, 'reconnecting');
    await lost.stop();
    await reconnecting;
    await expect(app.locks.tryAcquire('name')).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    client.disconnect();
  });
});
