import { setTimeout as sleep } from 'node:timers/promises';
import calculateSlot from 'cluster-key-slot';
import { Redis, type Cluster } from 'ioredis';
import { IdempotencyService, ScheduledJobs, SemaphoreService } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { asBusy, asGranted, QueuePeer } from '../support/queue-peer.js';
import { RENEWED_OFTEN, renewedAgain } from '../support/renewals.js';
import { startRedisCluster, type RedisCluster } from '../support/servers/redis-cluster.js';

let cluster: RedisCluster;
let client: Cluster;
let app: LockApp;

beforeAll(async () => {
  cluster = await startRedisCluster();
  client = cluster.client();
  app = await startLockApp({ redis: client });
});
afterAll(async () => {
  await app.close();
  client.disconnect();
  await cluster.stop();
});

/** The slot of a name is on its way to another node: begun, and to be ended in two steps. */
async function migrating(name: string) {
  const slot = calculateSlot(`lock:{${name}}`);
  const admins = cluster.servers.map(({ url }) => new Redis(url));
  const ids = await Promise.all(admins.map((admin) => admin.cluster('MYID')));
  const masters = (await (admins[0] as Redis).call('CLUSTER', 'SLOTS')) as [number, number, [string, number, string]][];
  const from = ids.indexOf(masters.find(([first, last]) => first <= slot && slot <= last)?.[2][2] as string);
  const to = (from + 1) % admins.length;
  const [source, target] = [admins[from] as Redis, admins[to] as Redis];
  await target.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', ids[from] as string);
  await source.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', ids[to] as string);
  return {
    async moveKeys() {
      const keys = (await source.call('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[];
      const port = String(cluster.servers[to]?.port);
      if (keys.length > 0) await source.call('MIGRATE', '127.0.0.1', port, '', '0', '5000', 'KEYS', ...keys);
    },
    async finish() {
      for (const admin of [target, source, ...admins]) {
        await admin.call('CLUSTER', 'SETSLOT', slot, 'NODE', ids[to] as string);
      }
      for (const admin of admins) admin.disconnect();
    },
  };
}

it.each([[['moving']], [['{together}:a', '{together}:b']]])(
  'renews %j while the slot is moved, before and after its keys are',
  async (names) => {
    const lock = await app.locks.acquire(names, RENEWED_OFTEN);
    const migration = await migrating(names[0] as string);
    await renewedAgain(lock);
    await migration.moveKeys();
    await renewedAgain(lock);
    await migration.finish();
    await renewedAgain(lock);
    expect(lock.held).toBe(true);
    expect(app.logger.lines).toEqual([]);
    await lock.release();
    await (await app.locks.acquire(names)).release();
  },
);

it.each(['used', 'never used'])('grants and releases a name that was %s while its slot is moved', async (name) => {
  const tokens: number[] = [];
  const take = async () => {
    const lock = await app.locks.acquire(name, { ttl: 5_000, wait: 2_000 });
    expect(await app.locks.tryAcquire(name)).toBeNull();
    tokens.push(lock.fencingToken);
    await lock.release();
  };
  if (name === 'used') await take();
  const migration = await migrating(name);
  await take();
  await take();
  await migration.moveKeys();
  await take();
  await migration.finish();
  await take();
  expect(tokens).toEqual([...new Set(tokens)].toSorted((one, two) => one - two));
  expect(app.logger.lines).toEqual([]);
});

it('keeps all readers of a name, and every writer out, while its slot is moved', async () => {
  const read = { ...RENEWED_OFTEN, mode: 'read' } as const;
  const readers = [await app.locks.acquire('read', read), await app.locks.acquire('read', read)];
  const noWriter = async () => {
    await renewedAgain(...readers);
    expect(await app.locks.tryAcquire('read')).toBeNull();
    expect(readers.map(({ held }) => held)).toEqual([true, true]);
  };
  const migration = await migrating('read');
  await noWriter();
  // One leaves, and the other one stays.
  await readers.shift()?.release();
  await renewedAgain(...readers);
  expect(await app.locks.tryAcquire('read')).toBeNull();
  await migration.moveKeys();
  await renewedAgain(...readers);
  await migration.finish();
  await renewedAgain(...readers);
  expect(await app.locks.tryAcquire('read')).toBeNull();
  await readers[0]?.release();
  await (await app.locks.acquire('read')).release();
  expect(app.logger.lines).toEqual([]);
});

describe('a name for which others wait, while its slot is moved', () => {
  let peers: QueuePeer[];
  let own: string[];
  const name = 'handed on';
  const [holder, waiter] = [() => peers[0] as QueuePeer, () => peers[1] as QueuePeer];
  let migration: Awaited<ReturnType<typeof migrating>>;

  beforeEach(async () => {
    peers = await Promise.all([new QueuePeer(client as never).listen(), new QueuePeer(client as never).listen()]);
    own = [holder().ticket(), waiter().ticket()];
    asGranted(await holder().enqueue(name, own[0] as string));
    asBusy(await waiter().enqueue(name, own[1] as string));
    migration = await migrating(name);
  });
  afterEach(async () => {
    await migration.moveKeys();
    await migration.finish();
    await client.del(...['', ':fence', ':queue', ':waiters'].map((end) => `lock:{${name}}${end}`));
    for (const { backend } of peers) await backend.close();
  });

  it('is handed on by its owner, who waits again', async () => {
    const again = holder().ticket();
    asBusy(await holder().requeue(name, own[0] as string, again));
    await waiter().granted(own[1] as string);
    expect(await client.get(`lock:{${name}}`)).toBe(own[1]);
    expect(await client.lrange(`lock:{${name}}:queue`, 0, -1)).toEqual([again]);
  });

  it('is taken from its owner, and free for the waiter', async () => {
    expect(await app.locks.forceRelease(name)).toBe(true);
    await eventually(async () => (await waiter().beat(name, own[1] as string)).status === 'granted');
  });

  it('is released, and free for the waiter', async () => {
    expect(await holder().release(name, own[0] as string)).toEqual({ status: 'released', resent: false });
    await eventually(async () => (await waiter().beat(name, own[1] as string)).status === 'granted');
  });
});

it('takes a permit back, and keeps the number of permits, while the slot is moved', async () => {
  const semaphores = app.app.get(SemaphoreService);
  const options = { permits: 1, ttl: '1m', wait: '1m' } as const;
  const held = await semaphores.acquire('few', options);
  const waits = semaphores.acquire('few', options);
  await eventually(async () => (await client.zcard('semaphore:{few}:queue')) === 1);
  const migration = await migrating('few');
  await held.release();
  await migration.moveKeys();
  await migration.finish();
  await (await waits).release();
  expect(app.logger.lines).toEqual([]);
});

it('runs idempotent methods and jobs, and repeats results, while their slots are moved', async () => {
  const [service, jobs] = [app.app.get(IdempotencyService), app.app.get(ScheduledJobs)];
  const attempts: number[] = [];
  const call = (key: string) =>
    service.run(key, { wait: 2_000 }, async ({ attempt }) => {
      attempts.push(attempt);
      return key;
    });
  const run = () => jobs.run('moved', { atMostFor: '1m', atLeastFor: 0 }, async () => 'done');
  await call('before');
  for (const key of ['before', 'amid']) {
    const migration = await migrating(`idempotency:${key}`);
    expect([await call(key), await call(key)]).toEqual([key, key]);
    await migration.moveKeys();
    expect(await call(key)).toBe(key);
    await migration.finish();
    expect(await call(key)).toBe(key);
  }
  expect(attempts).toEqual([1, 1]);
  const migration = await migrating('schedule:moved');
  expect([await run(), (await jobs.lastRun('moved'))?.outcome]).toEqual(['done', 'succeeded']);
  await migration.moveKeys();
  expect([await run(), (await jobs.lastRun('moved'))?.outcome]).toEqual(['done', 'succeeded']);
  await migration.finish();
  expect(app.logger.lines).toEqual([]);
});

it('serves the waiters for a lock whose slot is moved, in this process and in another one', async () => {
  const otherClient = cluster.client();
  const other = await startLockApp({ redis: otherClient });
  const held = await app.locks.acquire('passed on', { ttl: '1m' });
  const entered: string[] = [];
  const wait = { wait: '1m', ttl: '1m' } as const;
  const waits = [
    app.locks.withLock('passed on', wait, async () => entered.push('here')),
    other.locks.withLock('passed on', wait, async () => entered.push('there')),
  ];
  await eventually(async () => (await app.locks.inspect('passed on'))?.waiting === 1);
  const migration = await migrating('passed on');
  waits.push(other.locks.withLock('passed on', wait, async () => entered.push('late')));
  await held.release();
  await Promise.all(waits);
  expect(entered.toSorted()).toEqual(['here', 'late', 'there']);
  await migration.moveKeys();
  await migration.finish();
  await other.close();
  otherClient.disconnect();
});

it('keeps one holder at a time and rising tokens while the slot of a hot lock is moved', async () => {
  const otherClient = cluster.client();
  const other = await startLockApp({ redis: otherClient });
  let inside = 0;
  let most = 0;
  const tokens: number[] = [];
  const stopped = new AbortController();
  const contend = async ({ locks }: LockApp) => {
    while (!stopped.signal.aborted) {
      await locks.withLock('hot', { wait: '1m' }, async ({ fencingToken }) => {
        most = Math.max(most, ++inside);
        tokens.push(fencingToken);
        await sleep(2);
        inside -= 1;
      });
    }
  };
  const contenders = [app, app, other, other].map(contend);
  const more = async () => {
    const before = tokens.length;
    await eventually(() => tokens.length > before + 20);
  };
  await more();
  const migration = await migrating('hot');
  await more();
  await migration.moveKeys();
  await more();
  await migration.finish();
  await more();
  stopped.abort();
  await Promise.all(contenders);
  expect(most).toBe(1);
  expect(tokens).toEqual([...new Set(tokens)].toSorted((one, two) => one - two));
  await other.close();
  otherClient.disconnect();
});
