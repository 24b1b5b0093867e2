import { createConnection, type Connection } from 'mysql2/promise';
import { getLock } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startMariadbServer, type MariadbServer } from '../../support/servers/mariadb-server.js';

let server: MariadbServer;
let admin: Connection;
let one: LockApp;
let two: LockApp;
beforeAll(async () => {
  server = await startMariadbServer();
  admin = await createConnection(server.url);
  one = await startLockApp({ backend: getLock(server.url) });
  two = await startLockApp({ backend: getLock(server.url) });
}, 60_000);
afterAll(async () => {
  await Promise.all([one.close(), two.close()]);
  await admin.end();
  await server.stop();
});

it('tells a holder that its session was killed without waiting for a renewal, and frees its name', async () => {
  const lock = await one.locks.acquire('killed', { ttl: 60_000, renew: false });
  const aborted = new Promise<number>((resolve) => {
    lock.signal.addEventListener('abort', () => resolve(performance.now()));
  });
  const [rows] = await admin.query('SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()');
  const killedAt = performance.now();
  for (const { id } of rows as { id: number }[]) await admin.query(`KILL CONNECTION ${id}`);
  expect((await aborted) - killedAt).toBeLessThan(4_000);
  expect(lock.held).toBe(false);
  const next = await two.locks.acquire('killed', { wait: 20_000 });
  expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  await next.release();
});

it('grants a name once, although a session could take it twice', async () => {
  const lock = await one.locks.acquire('once');
  expect(await one.locks.tryAcquire('once')).toBeNull();
  expect(await two.locks.tryAcquire('once')).toBeNull();
  await lock.release();
  const [[count]] = (await admin.query(
    'SELECT COUNT(*) AS used FROM nest_redis_lock_tokens WHERE IS_USED_LOCK(LOWER(HEX(id))) IS NOT NULL',
  )) as unknown as [[{ used: number }]];
  expect(count.used).toBe(0);
});

it('refuses what a session cannot do', async () => {
  await expect(one.locks.acquire('held', { minHold: 100 })).rejects.toThrow('Option "minHold" is 100');
  await expect(one.locks.forceRelease('held')).rejects.toThrow('cannot free a name that another process holds');
});

it('passes a name from caller to caller of two processes', async () => {
  let inside = 0;
  const tokens: number[] = [];
  const sell = (app: LockApp) =>
    app.locks.withLock('shared', { wait: 60_000 }, async (lock) => {
      inside += 1;
      expect(inside).toBe(1);
      tokens.push(lock.fencingToken);
      await new Promise((resolve) => setImmediate(resolve));
      inside -= 1;
    });
  await Promise.all(Array.from({ length: 60 }, (_each, index) => sell(index % 2 === 0 ? one : two)));
  expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
  expect(new Set(tokens).size).toBe(60);
});

it('leaves no session behind', async () => {
  const app = await startLockApp({ backend: getLock(server.url, { sessions: 3 }) });
  await Promise.all(['a', 'b', 'c', 'd'].map((name) => app.locks.acquire(name)));
  await app.close();
  await eventually(async () => {
    const names = await Promise.all(['a', 'b', 'c', 'd'].map((name) => one.locks.isLocked(name)));
    return !names.includes(true);
  });
});
