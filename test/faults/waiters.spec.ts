import { Redis } from 'ioredis';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { QueueCrew } from '../support/queue-crew.js';
import { quietTimeSince } from '../support/quiet-time.js';
import { startRedisCluster } from '../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

/** Waiters that stand still, or die: how long those behind them wait for it, whatever their ttl. */

/** A waiter without a heartbeat for this time (ms) is passed over. */
const SILENCE = 1_500;
/** What each may cost that was heard of since: its claim (ms). */
const CLAIM = 1_000;
/** What a noisy machine may add (ms). */
const SLACK = 400;

interface Store {
  readonly redis: NonNullable<RedisLockModuleOptions['redis']>;
  readonly crew: QueueCrew;
  stop(): Promise<void>;
}

async function onRedis(): Promise<Store> {
  const server = await startRedisServer();
  return { redis: server.url, crew: new QueueCrew(server.port), stop: () => server.stop() };
}

async function onCluster(): Promise<Store> {
  const [evidence, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
  const client = cluster.client();
  const stop = async () => {
    client.disconnect();
    await cluster.stop();
    await evidence.stop();
  };
  const ports = cluster.servers.map(({ port }) => port);
  return { redis: client, crew: new QueueCrew(evidence.port, ports), stop };
}

/** How many stand still, or die, their ttl in ms, and by which signal. */
type Case = readonly [count: number, ttl: number, signal: 'SIGSTOP' | 'SIGKILL'];

const casesOnRedis: readonly Case[] = [
  [1, 30_000, 'SIGSTOP'],
  [1, 300, 'SIGSTOP'],
  [2, 30_000, 'SIGSTOP'],
  [2, 300, 'SIGSTOP'],
  [2, 30_000, 'SIGKILL'],
];

/** There, Redis does not see that a channel has no subscriber any more. */
const casesOnCluster: readonly Case[] = [
  [1, 30_000, 'SIGSTOP'],
  [2, 30_000, 'SIGSTOP'],
  [1, 30_000, 'SIGKILL'],
  [2, 30_000, 'SIGKILL'],
];

describe.each([
  { kind: 'Redis', open: onRedis, cases: casesOnRedis },
  { kind: 'a Cluster', open: onCluster, cases: casesOnCluster },
])('on $kind', ({ kind, open, cases }) => {
  let store: Store;
  let crew: QueueCrew;
  let holder: LockApp;
  let other: LockApp;

  beforeAll(async () => {
    store = await open();
    crew = store.crew;
    [holder, other] = await Promise.all([startLockApp({ redis: store.redis }), startLockApp({ redis: store.redis })]);
  });
  afterAll(async () => {
    await crew.dismiss();
    await holder.close();
    await other.close();
    await store.stop();
  });

  describe.each(cases)('%i of them with a ttl of %i ms after %s', (count, ttl, signal) => {
    const name = `${kind}:${count}:${ttl}:${signal}`;
    const ids = Array.from({ length: count }, (_, index) => `${name}:${index}`);

    async function queued(tickets: number): Promise<void> {
      await eventually(async () => (await holder.locks.inspect(name))?.waiting === tickets, { every: 2 });
    }

    it('delay the next by a claim each at most, and by no more than the silence after which they are passed over', async () => {
      await crew.hire(...ids);
      const lock = await holder.locks.acquire(name, { ttl: 30_000 });
      for (const [index, id] of ids.entries()) {
        await crew.take(id, name, id, { options: { ttl, wait: 20_000 } });
        await queued(index + 1);
      }
      const waiting = other.locks.acquire(name, { wait: 20_000 });
      await queued(count + 1);
      for (const id of ids) crew.member(id).signal(signal);
      await lock.release();
      const start = performance.now();
      const next = await waiting;
      const after = quietTimeSince(start);
      await Promise.all(ids.map((id) => crew.member(id).kill()));
      await next.release();
      expect(after).toBeLessThan(Math.min(count * Math.min(ttl, CLAIM), SILENCE + CLAIM) + SLACK);
      expect(await crew.grants(name)).toEqual([]);
    });
  });
});

describe('the end of minHold', () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  it('a name stays taken for the rest of minHold when its process is killed after an early release', async () => {
    const plain = new Redis(server.url);
    const crew = new QueueCrew(server.port);
    await using other = await startLockApp({ redis: server.url });
    await crew.hire('early');
    await crew.take('early', 'orphan', 'early', { options: { ttl: 60_000, minHold: 3_000 } });
    const left = await eventually(async () => {
      const ttl = await plain.pttl('lock:{orphan}');
      return ttl > 0 && ttl <= 3_000 ? ttl : undefined;
    });
    const over = performance.now() + left;
    await crew.member('early').kill();
    expect(await other.locks.tryAcquire('orphan')).toBeNull();
    const lock = await other.locks.acquire('orphan', { wait: 20_000 });
    expect(performance.now()).toBeGreaterThan(over - 50);
    await lock.release();
    await crew.dismiss();
    plain.disconnect();
  });
});
