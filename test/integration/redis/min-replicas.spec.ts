import { Cluster, Redis } from 'ioredis';
import { LockConfigError, LockReplicationError, redis } from 'nest-redis-lock';
import { eventually } from '../../support/eventually.js';
import { startLockApp } from '../../support/lock-app.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

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
