import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startRedisSentinel, type RedisSentinel } from '../../support/servers/redis-sentinel.js';

let sentinel: RedisSentinel;
let apps: LockApp[];

beforeAll(async () => {
  sentinel = await startRedisSentinel();
  apps = await Promise.all([1, 2].map(() => startLockApp({ redis: sentinel.options, commandTimeout: 1_000 })));
});
afterAll(async () => {
  await Promise.all(apps.map((app) => app.close()));
  await sentinel.stop();
});

it('keeps a replicated lock and the readers of another one, and serves who waits for them, after a failover', async () => {
  const [one, two] = apps.map(({ locks }) => locks) as [LockApp['locks'], LockApp['locks']];
  const held = await one.acquire('failover', { ttl: 10_000 });
  const waiting = two.acquire('failover', { wait: 15_000 });
  const readers = await Promise.all([one, two].map((locks) => locks.acquire('read', { ttl: 10_000, mode: 'read' })));
  const writing = one.acquire('read', { wait: 15_000 });
  // Replication is asynchronous: what was not sent yet when the master dies is lost, as the documentation says.
  const replica = new Redis(sentinel.replica.url);
  const keys = ['failover', 'read'].flatMap((name) => [`lock:{${name}}`, `lock:{${name}}:queue`]);
  await eventually(async () => (await replica.exists(...keys)) === keys.length);
  await eventually(async () => (await replica.get('lock:{read}'))?.match(/=/g)?.length === readers.length);
  replica.disconnect();
  await sentinel.master.process.kill();
  await sleep(4_000);
  expect([held, ...readers].map((lock) => lock.held)).toEqual([true, true, true]);
  await Promise.all([held, ...readers].map((lock) => lock.extend()));
  await held.release();
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
  await next.release();
  expect(await one.isLocked('failover')).toBe(false);
  const [first, last] = readers;
  await first?.release();
  // The other reader still holds it, and the writer waits: nobody else comes in.
  for (const mode of ['read', 'write'] as const) expect(await two.tryAcquire('read', { mode })).toBeNull();
  await last?.release();
  const writer = await writing;
  expect(writer.fencingToken).toBeGreaterThan(Math.max(...readers.map(({ fencingToken }) => fencingToken)));
  expect(await two.tryAcquire('read', { mode: 'read' })).toBeNull();
  await writer.release();
  expect(await one.isLocked('read')).toBe(false);
}, 40_000);

it('goes on contending on the new master', async () => {
  let inside = 0;
  let most = 0;
  const served = [0, 0];
  const until = performance.now() + 20_000;
  const loop = async ({ locks }: LockApp, index: number) => {
    while (Math.min(...served) <= 10 && performance.now() < until) {
      await locks.withLock('hot', async () => {
        most = Math.max(most, ++inside);
        await sleep(1);
        inside -= 1;
        served[index] = (served[index] ?? 0) + 1;
      });
    }
  };
  await Promise.all(apps.flatMap((app, index) => [1, 2, 3].map(() => loop(app, index))));
  expect(most).toBe(1);
  expect(Math.min(...served)).toBeGreaterThan(10);
});
