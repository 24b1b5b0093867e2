import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { etcd } from 'nest-redis-lock/etcd';
import { Child } from '../../support/child.js';
import { askEtcd, keysOf } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startEtcdCluster, type EtcdMember } from '../../support/servers/etcd-server.js';
import { startPostgresServer, type PostgresServer } from '../../support/servers/postgres-server.js';

const SESSION = 2_000;

let member: EtcdMember;
let database: PostgresServer;
let pool: pg.Pool;
let one: LockApp;
let two: LockApp;

beforeAll(async () => {
  [[member], database] = (await Promise.all([startEtcdCluster(1), startPostgresServer()])) as [
    [EtcdMember],
    PostgresServer,
  ];
  pool = new pg.Pool({ connectionString: database.url });
  await pool.query('CREATE TABLE fenced (token bigint NOT NULL, writer text); INSERT INTO fenced VALUES (0, NULL)');
  const start = () => startLockApp({ backend: etcd({ endpoints: member.url, ttl: SESSION }), cache: false });
  [one, two] = await Promise.all([start(), start()]);
}, 120_000);
afterAll(async () => {
  await Promise.all([one.close(), two.close()]);
  await pool.end();
  await Promise.all([member.stop(), database.stop()]);
});

function startHolder(name: string): Child {
  return Child.start('etcd-holder.mjs', [member.url, database.url, name, String(SESSION)]);
}

async function leaseOfWaiter(): Promise<string> {
  return eventually(async () => {
    const keys = await keysOf(member.url);
    return keys.find(({ key }) => key.includes('/wait/'))?.lease;
  });
}

it('refuses the write of a holder that stood still for longer than its session', async () => {
  const child = startHolder('frozen');
  try {
    const { fencingToken } = await child.says<{ fencingToken: number }>('held');
    child.signal('SIGSTOP');
    const stopped = performance.now();
    const next = await one.locks.acquire('frozen', { wait: 60_000 });
    expect(next.fencingToken).toBeGreaterThan(fencingToken);
    const write = 'UPDATE fenced SET token = $1, writer = $2 WHERE token < $1';
    expect((await pool.query(write, [next.fencingToken, 'the next one'])).rowCount).toBe(1);
    // The session may have been near its end; the child looks for a pause of half a session.
    await sleep(stopped + SESSION - performance.now());
    child.signal('SIGCONT');
    expect(await child.says('woken')).toEqual({ held: false, aborted: true, rows: 0 });
    expect((await pool.query('SELECT writer FROM fenced')).rows).toEqual([{ writer: 'the next one' }]);
    next.assertHeld();
    await next.release();
  } finally {
    await child.kill();
  }
});

it('lets the next one in when the process of the holder dies', async () => {
  const child = startHolder('killed');
  const { fencingToken } = await child.says<{ fencingToken: number }>('held');
  const waiting = one.locks.acquire('killed', { wait: 60_000 });
  await child.kill();
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(fencingToken);
  await next.release();
});

it('does not take a session that has ended in the queue for a lock', async () => {
  const held = await one.locks.acquire('revoked waiter');
  let entered = false;
  const waiting = two.locks.withLock('revoked waiter', { wait: 60_000 }, async (lock) => {
    entered = true;
    expect(held.held).toBe(false);
    const keys = await keysOf(member.url);
    expect(keys.find(({ key }) => key === 'nest-redis-lock/lock//revoked waiter/owner')?.value).toBe(lock.owner);
    return lock.fencingToken;
  });
  const ID = await leaseOfWaiter();
  await askEtcd(member.url, '/v3/lease/revoke', { ID });
  const another = await eventually(async () => {
    const lease = await leaseOfWaiter();
    return lease !== ID && lease;
  });
  expect(another).not.toBe(ID);
  expect(entered).toBe(false);
  held.assertHeld();
  await held.release();
  expect(await waiting).toBeGreaterThan(held.fencingToken);
});

it('serves holder and waiter when the server ends and starts again meanwhile', async () => {
  const held = await one.locks.acquire('restart');
  const waiting = two.locks.acquire('restart', { wait: 60_000 });
  await leaseOfWaiter();
  await member.process.stop();
  await member.restart();
  await held.release().catch((error: unknown) => expect(error).toMatchObject({ code: 'LOCK_LOST' }));
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
  await next.release();
});

it('frees several names in one step, and none where one is taken', async () => {
  const held = await one.locks.acquire('several b');
  expect(await two.locks.tryAcquire(['several a', 'several b', 'several c'])).toBeNull();
  expect(await one.locks.isLocked('several a')).toBe(false);
  expect(await one.locks.isLocked('several c')).toBe(false);
  const waiting = two.locks.acquire(['several a', 'several b', 'several c'], { wait: 60_000 });
  await leaseOfWaiter();
  await held.release();
  const all = await waiting;
  expect(all.fencingToken).toBeGreaterThan(held.fencingToken);
  await all.release();
  expect((await keysOf(member.url)).filter(({ key }) => key.includes('several'))).toEqual([]);
});
