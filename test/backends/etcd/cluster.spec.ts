import { setTimeout as sleep } from 'node:timers/promises';
import { etcd } from 'nest-redis-lock/etcd';
import pg from 'pg';
import { Child } from '../../support/child.js';
import { askEtcd, keysOf } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { type EtcdMember, startEtcdCluster } from '../../support/servers/etcd-server.js';
import { type PostgresServer, startPostgresServer } from '../../support/servers/postgres-server.js';

describe('a cluster', () => {
  const SESSION = 5_000;

  let members: readonly EtcdMember[];
  let one: LockApp;
  let two: LockApp;

  beforeAll(async () => {
    members = await startEtcdCluster(3);
    const start = () => startLockApp({ backend: etcd({ endpoints: urls(), ttl: SESSION }), cache: false });
    [one, two] = await Promise.all([start(), start()]);
  });
  afterAll(async () => {
    await Promise.all([one.close(), two.close()]);
    await Promise.all(members.map((member) => member.stop()));
  });

  const urls = () => members.map(({ url }) => url);

  interface Status {
    readonly header: { readonly member_id: string };
    readonly leader?: string;
  }

  async function leader(): Promise<EtcdMember> {
    return eventually(async () => {
      for (const member of members) {
        const { header, leader: id } = await askEtcd<Status>(member.url, '/v3/maintenance/status', {});
        if (header.member_id === id) return member;
      }
      return undefined;
    });
  }

  async function eventuallyLocked(app: LockApp, name: string): Promise<number> {
    return eventually(async () => {
      try {
        return await app.locks.withLock(name, { wait: 1_000 }, async ({ fencingToken }) => fencingToken);
      } catch (error) {
        expect(error).toMatchObject({ code: expect.stringMatching(/^LOCK_(BACKEND|TIMEOUT|LOST)$/) });
        return undefined;
      }
    });
  }

  it('keeps held locks, and serves its callers, when the leader dies', async () => {
    const held = await one.locks.acquire('held');
    let inside = 0;
    let last = 0;
    let served = 0;
    const stop = new AbortController();
    const callers = [one, two, one, two].map(async ({ locks }) => {
      while (!stop.signal.aborted) {
        try {
          await locks.withLock('contended', { wait: 20_000 }, async ({ fencingToken }) => {
            expect((inside += 1)).toBe(1);
            expect(fencingToken).toBeGreaterThan(last);
            last = fencingToken;
            await new Promise((resolve) => setImmediate(resolve));
            inside -= 1;
          });
          served += 1;
        } catch (error) {
          expect(error).toMatchObject({ code: expect.stringMatching(/^LOCK_/) });
        }
      }
    });
    await eventually(() => served > 20);
    const dead = await leader();
    await dead.process.kill();
    const before = served;
    await eventually(() => served > before + 20);
    stop.abort();
    await Promise.all(callers);
    held.assertHeld();
    expect((await two.locks.inspect('held'))?.owner).toBe(held.owner);
    await held.release();
    await dead.restart();
  });

  it('fails in time, says why, and tells that locks are lost, while most members stand still', async () => {
    const before = await eventuallyLocked(one, 'minority');
    const held = await one.locks.acquire('minority');
    const [first, second] = members as [EtcdMember, EtcdMember];
    first.process.pause();
    second.process.pause();
    try {
      const askedAt = performance.now();
      const refused = await two.locks.acquire('another', { wait: 1_500 }).catch((error: unknown) => error);
      expect(performance.now() - askedAt).toBeLessThan(15_000);
      expect(refused).toMatchObject({ code: 'LOCK_BACKEND' });
      const causes = String((refused as Error).cause);
      expect(causes).toContain(`${first.url}: no answer within 500 ms`);
      expect(causes).toContain('most of its members do not answer');
      await eventually(() => held.signal.aborted);
      expect(held.held).toBe(false);
      expect(held.signal.reason).toMatchObject({ code: 'LOCK_LOST' });
    } finally {
      first.process.resume();
      second.process.resume();
    }
    expect(await eventuallyLocked(two, 'minority')).toBeGreaterThan(Math.max(before, held.fencingToken));
  });

  it('starts while one of its members is away, and says which', async () => {
    const [first] = members as [EtcdMember];
    await first.process.kill();
    const start = () => startLockApp({ backend: etcd({ endpoints: urls() }), cache: false, failFast: true });
    // The others may have to elect a leader first.
    await using app = await eventually(() => start().catch(() => undefined));
    expect(app.logger.matching(/ECONNREFUSED/)).toHaveLength(1);
    expect(app.logger.matching(/the other 2 of 3 endpoints serve/)).toHaveLength(1);
    await app.locks.withLock('without one', async () => {});
    await first.restart();
  });
});

describe('a holder', () => {
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
});
