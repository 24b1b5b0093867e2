import { setTimeout as sleep } from 'node:timers/promises';
import { etcd } from 'nest-redis-lock/etcd';
import pg from 'pg';
import { Child } from '../../support/child.js';
import { askEtcd, keysOf } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { type EtcdMember, startEtcdCluster } from '../../support/servers/etcd-server.js';
import { type PostgresServer, startPostgresServer } from '../../support/servers/postgres-server.js';
import { openBackend } from '../../support/open-backend.js';

describe('a cluster', () => {
  /** Longer than a busy machine takes to elect another leader. */
  const SESSION = 10_000;

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
      // The member that stays asks the others for a while before it says that it has no leader.
      const causes = await eventually(async () => {
        const refused = await two.locks.acquire('another', { wait: 1_500 }).catch((error: unknown) => error);
        expect(refused).toMatchObject({ code: 'LOCK_BACKEND' });
        const text = String((refused as Error).cause);
        return text.includes('most of its members do not answer') && text;
      });
      expect(causes).toContain(`${first.url}: no answer within 500 ms`);
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

describe('a loss of data', () => {
  let member: EtcdMember;
  beforeEach(async () => {
    [member] = (await startEtcdCluster(1)) as [EtcdMember];
  });
  afterEach(() => member.stop());

  const start = (firstToken = 0) =>
    startLockApp({ backend: etcd({ endpoints: member.url, ttl: 2_000, firstToken }), cache: false });
  const tokenOf = ({ locks }: LockApp) =>
    eventually(() => locks.withLock('fenced', async ({ fencingToken }) => fencingToken).catch(() => undefined));
  async function lose(): Promise<void> {
    await member.process.stop();
    await member.restart({ empty: true });
  }

  it.each([
    ['of the time', 0],
    // The clock says nothing of these.
    ['far above the time', 3_000_000_000_000_000],
  ])('lets no token of a process fall, with tokens %s', async (_, firstToken) => {
    const backend = openBackend(etcd({ endpoints: member.url, ttl: 2_000, firstToken }));
    const request = { name: 'fenced', ttl: 2_000 };
    try {
      let [last, tickets] = [0, 0];
      for (let turn = 0; turn < 40; turn += 1) {
        if (turn === 20 || turn === 30) await lose();
        const { ticket, tokens } = await eventually(async () => {
          tickets += 1;
          const asked = { ...request, ticket: `process:${tickets}` };
          const answer = await Promise.resolve(backend.acquire(asked)).catch(() => undefined);
          return answer?.status === 'granted' ? { ...asked, ...answer } : undefined;
        });
        expect(tokens.first).toBeGreaterThan(last);
        last = tokens.first + tokens.count - 1;
        await backend.release({ ...request, ticket });
      }
    } finally {
      await backend.close();
    }
  });

  it('gives processes that begin after it higher tokens, and after the restore of an older state', async () => {
    let last = 0;
    for (let round = 0; round < 2; round += 1) {
      const app = await start();
      for (let turn = 0; turn < 10; turn += 1) last = await tokenOf(app);
      await app.close();
      await lose();
      if (round > 0) {
        // The number stands where it was some time ago.
        const [key, value] = [btoa('nest-redis-lock/first-token'), btoa('1000000')];
        await askEtcd(member.url, '/v3/kv/put', { key, value });
      }
      await using next = await start();
      expect(await tokenOf(next)).toBeGreaterThan(last);
    }
  });
});

it.each(['its lease was revoked', 'the key of its session was deleted', 'etcd lost its data'])(
  'tells a holder at once, without waiting for a renewal, that %s',
  async (cause) => {
    const [member] = (await startEtcdCluster(1)) as [EtcdMember];
    const start = () => startLockApp({ backend: etcd({ endpoints: member.url, ttl: '5m' }), cache: false });
    const [one, two] = [await start(), await start()];
    try {
      const held = await one.locks.acquire('told', { ttl: '5m' });
      const session = await eventually(async () =>
        (await keysOf(member.url)).find(({ key }) => key.startsWith('nest-redis-lock/session/')),
      );
      if (cause === 'etcd lost its data') {
        await member.process.stop();
        await member.restart({ empty: true });
      } else if (cause === 'its lease was revoked') {
        await askEtcd(member.url, '/v3/lease/revoke', { ID: session.lease });
      } else await askEtcd(member.url, '/v3/kv/deleterange', { key: btoa(session.key) });
      // The next renewal comes 10 seconds after the last one.
      await eventually(() => held.signal.aborted, { within: 4_000 });
      const next = await two.locks.acquire('told', { wait: 60_000 });
      expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
      await next.release();
    } finally {
      await Promise.all([one.close(), two.close()]);
      await member.stop();
    }
  },
);

it('tells a holder of a grant that a restored etcd does not know, though its lease lives', async () => {
  const [member] = (await startEtcdCluster(1)) as [EtcdMember];
  const proxy = await FaultProxy.start(Number(new URL(member.url).port));
  const backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${proxy.port}`, ttl: '5m' }));
  const app = await startLockApp({ backend, cache: false });
  try {
    const held = await app.locks.acquire('not in the backup', { ttl: '5m' });
    proxy.refuse();
    const key = btoa('nest-redis-lock/lock//not in the backup/owner');
    await askEtcd(member.url, '/v3/kv/deleterange', { key });
    proxy.accept();
    await eventually(() => held.signal.aborted, { within: 4_000 });
  } finally {
    await app.close();
    await proxy.stop();
    await member.stop();
  }
});
