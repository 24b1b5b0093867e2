import { Redis } from 'ioredis';
import { redis, type RedisLockModuleOptions } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { startLockApp } from '../support/lock-app.js';
import { startRedisCluster } from '../support/servers/redis-cluster.js';

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
