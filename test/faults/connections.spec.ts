import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { Redis } from 'ioredis';
import { CacheService, type LockOptions, memory, redis, type RedisLockModuleOptions } from 'nest-redis-lock';
import { LockBackends } from '../../lib/lock/line/lock-backends.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { type Fault, FaultyBackend } from '../support/faulty-backend.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { startRedisCluster } from '../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

/**
 * An address that leads to one server and later to another, as a DNS name or a load balancer does. Open connections
 * stay.
 */
class RedirectableEndpoint {
  private readonly sockets = new Set<Socket>();

  private constructor(
    private readonly listener: Server,
    private target: number,
  ) {}

  static async start(target: number): Promise<RedirectableEndpoint> {
    const listener = createServer({ noDelay: true });
    const endpoint = new RedirectableEndpoint(listener, target);
    listener.on('connection', (client) => endpoint.link(client));
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', () => resolve()));
    return endpoint;
  }

  get port(): number {
    return (this.listener.address() as AddressInfo).port;
  }

  leadTo(target: number): void {
    this.target = target;
  }

  stop(): void {
    this.listener.close();
    for (const socket of this.sockets) socket.destroy();
  }

  private link(client: Socket): void {
    const server = connect({ host: '127.0.0.1', port: this.target, noDelay: true });
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      this.sockets.add(from);
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.sockets.delete(from);
        to.destroy();
      });
    }
  }
}

/**
 * Redis has lost its locks in a restart: their holders learn of it when the connection returns, before any renewal.
 */

/** Long enough that no renewal falls into a test. */
const TTL = 600_000;

describe('when the connection is there again', () => {
  let server: RedisServer;
  let plain: Redis;
  let proxy: FaultProxy;
  let client: Redis;

  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
  });
  beforeEach(async () => {
    proxy = await FaultProxy.start(server.port);
    client = new Redis(proxy.port);
    client.on('error', () => {});
  });
  afterEach(async () => {
    client.disconnect();
    await proxy.stop();
  });
  afterAll(async () => {
    plain.disconnect();
    await server.stop();
  });

  const connections: [string, () => RedisLockModuleOptions][] = [
    ['a client of our own', () => ({ redis: { host: '127.0.0.1', port: proxy.port } })],
    ['a client of the user', () => ({ redis: client })],
  ];

  it.each(connections)('%s: what Redis has lost is lost at once, and the rest is kept', async (_, options) => {
    await plain.flushall();
    await using app = await startLockApp(options());
    const renewed = await app.locks.acquire('renewed', { ttl: TTL });
    const fixed = await app.locks.acquire('fixed', { ttl: TTL, renew: false });
    const several = await app.locks.acquire(['a', 'b'], { ttl: TTL });
    const kept = await app.locks.acquire('kept', { ttl: TTL, renew: false });
    proxy.refuse();
    await plain.del('lock:{renewed}', 'lock:{fixed}', 'lock:{b}');
    proxy.accept();
    await eventually(() => renewed.signal.aborted && fixed.signal.aborted && several.signal.aborted);
    expect(renewed.signal.reason).toMatchObject({ reason: 'taken' });
    expect(kept.held).toBe(true);
    expect(await plain.pttl('lock:{kept}')).toBeLessThan(TTL);
    await kept.release();
  });

  it('no listener stays on the client of the user', async () => {
    // ioredis adds some of its own until then.
    await once(client, 'ready');
    const before = client.listenerCount('ready');
    const app = await startLockApp({ redis: client });
    expect(client.listenerCount('ready')).toBeGreaterThan(before);
    await app.close();
    expect(client.listenerCount('ready')).toBe(before);
  });
});

it('eight backends on one client of the user cause no leak warning, and restore its limit of listeners when closed', async () => {
  await using server = await startRedisServer();
  const client = new Redis(server.url);
  const before = client.getMaxListeners();
  const backends = Object.fromEntries(Array.from({ length: 7 }, (_, index) => [`b${index}`, redis(client)]));
  const app = await startLockApp({ redis: client, backends, cache: { redis: client } });
  const held = await app.locks.acquire('busy');
  const waiting = app.locks.acquire('busy');
  await held.release();
  await (await waiting).release();
  // Node.js warns of a leak beyond this.
  const most = client.getMaxListeners();
  for (const event of client.eventNames()) expect(client.listenerCount(event)).toBeLessThanOrEqual(most);
  await app.close();
  expect(client.getMaxListeners()).toBe(before);
  client.disconnect();
});

it('a Cluster: what a node has lost is lost as soon as it is there again', async () => {
  const cluster = await startRedisCluster();
  const client = cluster.client();
  try {
    await using app = await startLockApp({ redis: client });
    const before = client.listenerCount('+node');
    const lock = await app.locks.acquire('x', { ttl: TTL });
    const admins = cluster.servers.map(({ url }) => new Redis(url));
    for (const admin of admins) {
      await admin.del('lock:{x}').catch(() => {});
      await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      admin.disconnect();
    }
    await eventually(() => lock.signal.aborted, { within: 10_000 });
    await app.close();
    expect(client.listenerCount('+node')).toBeLessThan(before);
  } finally {
    client.disconnect();
    await cluster.stop();
  }
}, 60_000);

describe('a demotion', () => {
  let former: RedisServer;
  let primary: RedisServer;
  let endpoint: RedirectableEndpoint;
  let admin: Redis;

  beforeAll(async () => {
    [former, primary] = await Promise.all([startRedisServer(), startRedisServer()]);
    admin = new Redis(former.url);
  });
  beforeEach(async () => {
    endpoint = await RedirectableEndpoint.start(former.port);
  });
  afterEach(async () => {
    endpoint.stop();
    await admin.call('REPLICAOF', 'NO', 'ONE');
  });
  afterAll(async () => {
    admin.disconnect();
    await Promise.all([former.stop(), primary.stop()]);
  });

  /** The connections stay open, and new ones lead to the new primary. */
  async function demote(): Promise<void> {
    await admin.call('REPLICAOF', '127.0.0.1', String(primary.port));
    endpoint.leadTo(primary.port);
  }

  describe.each([
    ['a client of ours', () => `redis://127.0.0.1:${endpoint.port}`],
    ['a client of the user', () => new Redis(endpoint.port, '127.0.0.1')],
  ])('%s, whose server becomes a replica', (_whose, connection) => {
    it('finds the new primary, and says so once', async () => {
      const client = connection();
      await using app = await startLockApp({ redis: client, cache: { defaults: { onRedisError: 'throw' } } });
      const cache = app.app.get(CacheService);
      await app.locks.withLock('x', async () => cache.set('k', 1));
      await demote();
      await app.locks.withLock('x', { wait: 5_000 }, async () => {});
      expect(app.logger.matching(/127.0.0.1:\d+ is read-only.*reconnecting/)).toHaveLength(1);
      expect(await cache.getOrSet('k', async () => 2)).toBe(2);
      if (client instanceof Redis) client.disconnect();
    });

    it('finds it even when only the cache asks', async () => {
      const client = connection();
      await using app = await startLockApp({ redis: client });
      const cache = app.app.get(CacheService);
      await cache.getOrSet('c', async () => 1);
      await demote();
      await eventually(async () => {
        await cache.getOrSet('d', async () => 1);
        // Its circuit breaker may be open meanwhile.
        return cache.has('d').catch(() => false);
      });
      if (client instanceof Redis) client.disconnect();
    });
  });

  it('a client that would not connect again is not closed, and the warning says what to do', async () => {
    const client = new Redis(endpoint.port, '127.0.0.1', { retryStrategy: () => null });
    await using app = await startLockApp({ redis: client });
    await app.locks.withLock('x', async () => {});
    await demote();
    await expect(app.locks.acquire('x', { wait: 0 })).rejects.toThrow(/READONLY.*give the address of the primary/);
    expect(
      app.logger.matching(/is read-only.*retryStrategy of its client does not reconnect: connect it to the primary/),
    ).toHaveLength(1);
    expect(client.status).toBe('ready');
    client.disconnect();
  });
});

describe('each single fault', () => {
  /**
   * Fails each call to the backend once, in every way of taking a lock. Whatever the caller gets, afterwards no name is
   * owned, no ticket waits, and nothing is renewed.
   */

  /** Longer than a test: a name that is free before was released. */
  const LEASE = 30_000;

  interface World {
    readonly faulty: FaultyBackend;
    readonly app: LockApp;
    /** Another process, where there is one. */
    readonly other: LockApp;
  }

  interface Scenario {
    readonly title: string;
    /** Held by another process, and released while the call waits. */
    readonly contended?: readonly string[];
    run(world: World): Promise<unknown>;
  }

  const NAMES = ['a', 'b', 'c'];
  const LONG: LockOptions = { ttl: LEASE, wait: 1_500 };

  const hold = (key: string | string[], options: LockOptions = {}) => ({
    run: ({ app }: World) => app.locks.withLock(key, { ...LONG, ...options }, async () => {}),
  });
  const nested = (outer: string | string[], inner: string | string[]) => ({
    run: ({ app: { locks } }: World) =>
      locks.withLock(outer, LONG, () => locks.withLock(inner, LONG, async () => {}).catch(() => {})),
  });
  const severalCallers = (key: string | string[], options: LockOptions = {}) => ({
    run: ({ app }: World) =>
      Promise.allSettled(
        Array.from({ length: 3 }, () => app.locks.withLock(key, { ...LONG, ...options }, async () => {})),
      ),
  });

  const scenarios: Scenario[] = [
    { title: 'one name', ...hold('a') },
    { title: 'one name, one try', ...hold('a', { wait: 0 }) },
    { title: 'one name, contended', contended: ['a'], ...hold('a') },
    { title: 'one name in order of arrival, contended', contended: ['a'], ...hold('a', { order: 'fifo' }) },
    { title: 'one name by a retry strategy, contended', contended: ['a'], ...hold('a', { retry: everyFewMs }) },
    { title: 'one name without renewal, contended', contended: ['a'], ...hold('a', { renew: false }) },
    { title: 'several callers of one name, contended', contended: ['a'], ...severalCallers('a') },
    { title: 'several names', ...hold(NAMES) },
    { title: 'several names, the first contended', contended: ['a'], ...hold(NAMES) },
    { title: 'several names, the last contended', contended: ['c'], ...hold(NAMES) },
    { title: 'several names, all contended', contended: NAMES, ...hold(NAMES) },
    { title: 'several callers of several names, contended', contended: ['b'], ...severalCallers(NAMES) },
    { title: 'a name inside of itself', ...nested('a', 'a') },
    { title: 'further names inside of one', ...nested('a', NAMES) },
    { title: 'further names inside of one, contended', contended: ['b'], ...nested('a', NAMES) },
    { title: 'one name inside of several', ...nested(['a', 'b'], 'c') },
  ];

  function everyFewMs() {
    return { next: () => ({ done: false, value: 10 }) };
  }

  /** More calls than any scenario makes before its end. */
  const MOST_CALLS = 40;

  async function tryEachFault(world: World, { contended = [], run }: Scenario, fault: Fault): Promise<void> {
    const { app, other, faulty } = world;
    for (let failing = 0; failing < MOST_CALLS; failing++) {
      const holds = await Promise.all(contended.map((name) => other.locks.acquire(name, { ttl: LEASE })));
      faulty.arm(failing, fault);
      const outcome = run(world).catch(() => {});
      if (holds.length > 0) {
        await eventually(() => faulty.calls.length > 0);
        await Promise.all(holds.map((lock) => lock.release()));
      }
      await outcome;
      const { sprung } = faulty;
      const what = `call ${failing} (${faulty.calls[failing]}) ${fault}`;
      for (const name of NAMES) {
        const free = await eventually(async () => (await other.locks.inspect(name)) === null).catch(() => false);
        if (!free) throw new Error(`"${name}" stays taken after ${what}`);
      }
      expect(watched(app)).toBe(0);
      if (!sprung) return;
    }
  }

  /** How many grants the watchdog renews. */
  function watched(app: LockApp): number {
    return app.app.get(LockBackends).main.watchdog.size;
  }

  describe.each<Fault>(['lost', 'refused'])('%s', (fault) => {
    describe('on Redis', () => {
      let server: RedisServer;
      let plain: Redis;
      let client: Redis;
      let world: World;

      beforeAll(async () => {
        server = await startRedisServer();
        plain = new Redis(server.url);
        client = new Redis(server.url);
      });
      beforeEach(async () => {
        const faulty = new FaultyBackend(redis(client));
        world = {
          faulty,
          app: await startLockApp({ backend: faulty.backend }),
          other: await startLockApp({ redis: server.url }),
        };
      });
      afterEach(async () => {
        await world.app.close();
        await world.other.close();
        expect(await plain.keys('lock:*[}]')).toEqual([]);
        expect(await plain.keys('lock:*:queue')).toEqual([]);
      });
      afterAll(async () => {
        client.disconnect();
        plain.disconnect();
        await server.stop();
      });

      it.each(scenarios.map((scenario) => [scenario.title, scenario] as const))(
        '%s',
        (_, scenario) => tryEachFault(world, scenario, fault),
        60_000,
      );
    });

    describe('in memory', () => {
      let world: World;

      beforeEach(async () => {
        const store = memory();
        const faulty = new FaultyBackend(store);
        const app = await startLockApp({ backend: faulty.backend });
        world = { faulty, app, other: await startLockApp({ backend: store }) };
      });
      afterEach(async () => {
        await world.app.close();
        await world.other.close();
      });

      it.each(
        scenarios
          .filter(({ title }) => !title.includes('order'))
          .map((scenario) => [scenario.title, scenario] as const),
      )('%s', (_, scenario) => tryEachFault(world, scenario, fault), 60_000);
    });
  });
});
