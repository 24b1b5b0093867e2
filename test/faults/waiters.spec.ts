import { connect } from 'node:net';
import { Redis } from 'ioredis';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { QueueCrew } from '../support/queue-crew.js';
import { startRedisCluster } from '../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

/** Waiters that stand still, or die: how long those behind them wait for it, whatever their ttl. */

/** A waiter without a heartbeat for this time (ms) is passed over. */
const SILENCE = 1_500;
/** What each may cost that was heard of since: its claim (ms). */
const CLAIM = 1_000;
/** What the clock of the tokens may differ (ms) from the clock of the leases. */
const TOLERANCE = 2;

interface Store {
  readonly redis: NonNullable<RedisLockModuleOptions['redis']>;
  readonly crew: QueueCrew;
  /** Of the servers that have the locks. */
  readonly ports: readonly number[];
  stop(): Promise<void>;
}

async function onRedis(): Promise<Store> {
  const server = await startRedisServer();
  const { url, port } = server;
  return { redis: url, crew: new QueueCrew(port), ports: [port], stop: () => server.stop() };
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
  return { redis: client, crew: new QueueCrew(evidence.port, ports), ports, stop };
}

/** Answers, when it is called, to whom the servers gave the name since now, in order, and for how long (ms). */
async function watchedGrants(ports: readonly number[], name: string) {
  // By hand: ioredis breaks where commands of others follow the answer to its MONITOR at once.
  const monitors = ports.map((port) => ({ client: new Redis(port), socket: connect(port, '127.0.0.1'), seen: '' }));
  for (const monitor of monitors) {
    monitor.socket.on('data', (bytes) => (monitor.seen += bytes.toString())).write('MONITOR\r\n');
    await eventually(() => monitor.seen.startsWith('+OK'), { every: 1 });
  }
  return async () => {
    const grants: { readonly owner: string | undefined; readonly lease: number }[] = [];
    for (const monitor of monitors) {
      await monitor.client.echo(`end of ${name}`);
      await eventually(() => monitor.seen.includes(`end of ${name}`));
      monitor.client.disconnect();
      monitor.socket.destroy();
      let given = false;
      for (const line of monitor.seen.split('\r\n')) {
        // What a script does follows the line of its call.
        if (!/^\S+ \[\d+ lua\]/.test(line)) given = false;
        const [command, key, owner, _px, lease] = [...line.matchAll(/"([^"]*)"/g)].map(([, argument]) => argument);
        if (key !== `lock:{${name}}`) continue;
        // The holder has freed it, or a message has reached nobody, and the script goes on to the next waiter.
        if (command === 'DEL' || (command === 'SET' && given)) grants.pop();
        if (command === 'SET') grants.push({ owner, lease: Number(lease) });
        given = command === 'SET';
      }
    }
    return grants;
  };
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
      const grants = await watchedGrants(store.ports, name);
      await lock.release();
      const next = await waiting;
      const given = await grants();
      expect(given.at(-1)?.owner).toBe(next.owner);
      const claims = given.filter(({ owner }) => owner !== next.owner);
      await Promise.all(ids.map((id) => crew.member(id).kill()));
      await next.release();
      // That a heartbeat comes when a claim ends is shown where the clock is driven.
      const delay = claims.reduce((sum, { lease }) => sum + lease, 0);
      expect(delay).toBeLessThanOrEqual(Math.min(count * Math.min(ttl, CLAIM), SILENCE + CLAIM));
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
    await eventually(async () => {
      const ttl = await plain.pttl('lock:{orphan}');
      return ttl > 0 && ttl <= 3_000;
    });
    const over = await plain.pexpiretime('lock:{orphan}');
    await crew.member('early').kill();
    expect(await other.locks.tryAcquire('orphan')).toBeNull();
    const lock = await other.locks.acquire('orphan', { wait: 20_000 });
    expect(lock.fencingToken / 1_000).toBeGreaterThanOrEqual(over - TOLERANCE);
    await lock.release();
    await crew.dismiss();
    plain.disconnect();
  });
});
