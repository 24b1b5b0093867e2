import { setTimeout as sleep } from 'node:timers/promises';
import { type LockBackend, LockConfigError } from 'nest-redis-lock';
import type { Notice, QueueMessage } from 'nest-redis-lock/backend';
import { leaseTable } from 'nest-redis-lock/postgres';
import type { PoolClient } from 'pg';
import pg from 'pg';
import { PostgresLink } from '../../../../lib/backends/postgres/connection/postgres-link.js';
import { LeaseTable, leaseSweeper, lockKey } from '../../../../lib/backends/postgres/lease-table/lease-table.js';
import { expectWaitersInOrder } from '../../../support/backend-cases.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import {
  db,
  name,
  owner,
  ownerAndWaiter,
  peer,
  server,
  silence,
  silentPeer,
  startLeaseTable,
} from '../../../support/lease-table-queue.js';
import { startLockApp } from '../../../support/lock-app.js';
import { asBusy, asGranted, CLAIM, QueuePeer, TTL } from '../../../support/queue-peer.js';
import { type PostgresServer, startPostgresServer } from '../../../support/servers/postgres-server.js';
import { openBackend } from '../../../support/open-backend.js';

describe('batches', () => {
  startLeaseTable();

  /** Names in the order of their keys. */
  function namesInOrder(count: number): readonly string[] {
    const names = Array.from({ length: count }, (_, index) => `${name}:${index}`);
    const bytesOf = (of: string) => Buffer.from(lockKey(undefined, of).slice(2), 'hex');
    return names.toSorted((a, b) => Buffer.compare(bytesOf(a), bytesOf(b)));
  }

  async function takeAll(names: readonly string[], by: QueuePeer): Promise<Map<string, string>> {
    const tickets = new Map(names.map((each) => [each, by.ticket()]));
    await Promise.all([...tickets].map(async ([each, ticket]) => asGranted(await by.enqueue(each, ticket))));
    return tickets;
  }

  /** The first call may go alone; the others share a statement. */
  async function releaseAll(tickets: Iterable<readonly [string, string]>, by: QueuePeer): Promise<string[]> {
    const answers = await Promise.all([...tickets].map(([each, ticket]) => by.release(each, ticket)));
    return answers.map(({ status }) => status);
  }

  /** Runs `body` in a transaction, which is committed when it ends. */
  async function inTransaction(body: (client: PoolClient) => Promise<void>): Promise<void> {
    const client = await db.connect();
    try {
      await client.query('BEGIN');
      await body(client);
    } finally {
      await client.query('COMMIT');
      client.release();
    }
  }

  async function someStatementWaits(text: string): Promise<void> {
    const waiting = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1`;
    await eventually(async () => (await db.query(waiting, [`%${text}%`])).rows.length > 0);
  }

  describe('a release of many names', () => {
    it('answers each of them: one released twice, one of another, one of nobody', async () => {
      const [by, other] = [await peer(), await peer()];
      const names = namesInOrder(6);
      const [theirs, nobodys] = [`${name}:theirs`, `${name}:nobodys`];
      const tickets = await takeAll(names, by);
      const next = other.ticket();
      asGranted(await other.enqueue(theirs, next));
      const twice = [names[3] as string, tickets.get(names[3] as string) as string] as const;
      const calls = [...tickets, twice, [theirs, by.ticket()] as const, [nobodys, by.ticket()] as const];
      const answers = await Promise.all(calls.map(([each, ticket]) => by.release(each, ticket)));
      const statuses = answers.map(({ status }) => status);
      const [, , , first, , , second] = answers;
      expect(new Set([first?.status, second?.status])).toEqual(new Set(['gone', 'released']));
      expect([first, second].find((each) => each?.status === 'gone')?.resent).toBe(true);
      expect(statuses.toSpliced(6, 1).toSpliced(3, 1)).toEqual([...Array(5).fill('released'), 'taken', 'gone']);
      expect(answers.at(-1)?.resent).toBe(false);
      expect(await owner(theirs)).toBe(next);
      expect(await Promise.all(names.map((each) => owner(each)))).toEqual(names.map(() => null));
    });

    it('hands on a name for which, unheard of here, another process waits', async () => {
      const [by, other] = [silentPeer(), await peer()];
      const names = namesInOrder(5);
      const tickets = await takeAll(names, by);
      const wanted = names[2] as string;
      const waiter = other.ticket();
      asBusy(await other.enqueue(wanted, waiter));
      expect(await releaseAll(tickets, by)).toEqual(names.map(() => 'released'));
      expect(await owner(wanted)).toBe(waiter);
      expect(await other.granted(waiter)).toMatchObject({ name: wanted });
    });

    it('sees a waiter who queues while it waits for the row', async () => {
      const [by, other] = [await peer(), await peer()];
      const names = namesInOrder(5);
      const tickets = await takeAll(names, by);
      const wanted = names[2] as string;
      const waiter = other.ticket();
      let released: Promise<string[]> | undefined;
      await inTransaction(async (client) => {
        const values = [lockKey(undefined, wanted), waiter, TTL, CLAIM, JSON.stringify(wanted)];
        await client.query('SELECT nest_redis_lock.enqueue_v1($1, $2, $3, $4, $5)', values);
        released = releaseAll(tickets, by);
        await someStatementWaits('r.number');
      });
      expect(await released).toEqual(names.map(() => 'released'));
      expect(await owner(wanted)).toBe(waiter);
      expect(await other.granted(waiter)).toMatchObject({ name: wanted });
    });

    it('leaves a name to the one who has it by now', async () => {
      const [by, other] = [await peer(), await peer()];
      const names = namesInOrder(5);
      const tickets = await takeAll(names, by);
      const lost = names[2] as string;
      const next = other.ticket();
      let released: Promise<string[]> | undefined;
      await inTransaction(async (client) => {
        const text = 'UPDATE nest_redis_lock.locks SET owner = $2 WHERE key = $1';
        await client.query(text, [lockKey(undefined, lost), next]);
        released = releaseAll(tickets, by);
        await someStatementWaits('r.number');
      });
      expect(await released).toEqual(names.map((each) => (each === lost ? 'taken' : 'released')));
      expect(await owner(lost)).toBe(next);
    });
  });

  it.each(['takes', 'releases'])('%s lock their rows in the order of the keys, whatever the plan', async (kind) => {
    // Rows that lie in another order, and a plan that would follow it.
    const options = '-c enable_nestloop=off -c enable_mergejoin=off';
    const by = new QueuePeer(leaseTable({ connectionString: server.url, options }));
    const names = namesInOrder(6);
    const tickets = new Map<string, string>();
    for (const each of [`${name}:alone`, ...names.toReversed()]) {
      for (const [of, ticket] of await takeAll([each], by)) tickets.set(of, ticket);
      if (kind === 'takes') await releaseAll(tickets, by);
    }
    // The first call may go alone; the others come in the order of the rows.
    const calls = [...tickets];
    let done: Promise<unknown> | undefined;
    await inTransaction(async (client) => {
      await client.query('SELECT 1 FROM nest_redis_lock.locks WHERE key = $1 FOR UPDATE', [
        lockKey(undefined, names[2] as string),
      ]);
      done =
        kind === 'takes'
          ? takeAll(
              calls.map(([each]) => each),
              by,
            )
          : releaseAll(calls, by);
      await someStatementWaits('unnest');
      const text = 'SELECT key FROM nest_redis_lock.locks WHERE key = ANY ($1::bytea[]) FOR UPDATE SKIP LOCKED';
      const { rows } = await client.query<{ key: Buffer }>(text, [names.map((each) => lockKey(undefined, each))]);
      const unlocked = new Set(rows.map(({ key }) => `\\x${key.toString('hex')}`));
      expect(names.map((each) => unlocked.has(lockKey(undefined, each)))).toEqual([
        false,
        false,
        true,
        true,
        true,
        true,
      ]);
    });
    await done;
    await by.backend.close();
  });
});

describe('limits', () => {
  let postgres: PostgresServer;
  let database: pg.Pool;
  beforeAll(async () => {
    postgres = await startPostgresServer();
    database = new pg.Pool({ connectionString: postgres.url, max: 2 });
    await using app = await startLockApp({ backend: leaseTable(postgres.url) });
    await app.locks.withLock('creates the tables', async () => {});
  });
  afterAll(async () => {
    await database.end();
    await postgres.stop();
  });

  /** The notices of a backend that was started. */
  async function started(backend: LockBackend): Promise<Notice[]> {
    const notices: Notice[] = [];
    await openBackend(backend, { report: (notice) => notices.push(notice) }).start?.();
    return notices;
  }

  async function withPeers(
    one: LockBackend,
    two: LockBackend,
    use: (one: QueuePeer, two: QueuePeer) => Promise<void>,
  ): Promise<void> {
    try {
      await use(new QueuePeer(one), new QueuePeer(two));
    } finally {
      await one.close();
      await two.close();
    }
  }

  describe('messages', () => {
    it('reach a module that begins to listen while the connection for them opens', async () => {
      const proxy = await FaultProxy.start(postgres.port);
      const backend = leaseTable(postgres.url, { messages: `postgres://postgres@127.0.0.1:${proxy.port}/postgres` });
      await started(backend);
      const heard: string[] = [];
      const listen = (process: string) =>
        openBackend(backend, { process, message: ({ ticket }) => heard.push(ticket) }).queue?.listen();
      proxy.slow({ reply: 50 });
      const first = listen('first');
      // The first channel is listened to already, and the connection is not yet open.
      const listening = async () => {
        const { rows } = await database.query(
          `SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN "nest_redis_lock:first"'`,
        );
        return rows.length === 1;
      };
      await eventually(listening, { every: 1 });
      await Promise.all([first, listen('second')]);
      for (const process of ['first', 'second']) {
        await database.query('SELECT pg_notify($1, $2)', [`nest_redis_lock:${process}`, `revoked for-${process}`]);
      }
      await eventually(() => heard.includes('for-first') && heard.includes('for-second'));
      await backend.close();
      await proxy.stop();
    });

    it('arrive again after the network has swallowed the connection for them while it opened', async () => {
      const proxy = await FaultProxy.start(postgres.port);
      const url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres?application_name=listening`;
      const messages: QueueMessage[] = [];
      const message = (each: QueueMessage) => messages.push(each);
      const backend = openBackend(leaseTable(postgres.url, { messages: url }), { process: 'one', message });
      await started(backend);
      proxy.slow({ request: 500 });
      const first = expect(backend.queue?.listen()).rejects.toThrow();
      // Connected; the first statement is on its way.
      const connected = async () => {
        const text = `SELECT 1 FROM pg_stat_activity WHERE application_name = 'listening' AND state = 'idle'`;
        return (await database.query(text)).rows.length === 1;
      };
      await eventually(connected, { every: 1 });
      proxy.hold('reply');
      await first;
      proxy.heal();
      const told = async () => {
        await database.query('SELECT pg_notify($1, $2)', ['nest_redis_lock:one', 'revoked t']);
        return messages.length > 0;
      };
      await eventually(told, { within: 60_000, every: 100 });
      await backend.close();
      await proxy.stop();
    }, 90_000);

    it('count as interrupted while their connection cannot be opened', async () => {
      const proxy = await FaultProxy.start(postgres.port);
      const told: string[] = [];
      const backend = openBackend(
        leaseTable(postgres.url, { messages: `postgres://postgres@127.0.0.1:${proxy.port}/postgres` }),
        { interrupted: () => told.push('interrupted'), reconnected: () => told.push('reconnected') },
      );
      await started(backend);
      await backend.queue?.listen();
      expect(told).toEqual(['reconnected']);
      proxy.refuse();
      await eventually(() => told.length > 1);
      proxy.accept();
      await eventually(() => told.length > 2, { within: 30_000 });
      expect(told).toEqual(['reconnected', 'interrupted', 'reconnected']);
      await backend.close();
      await proxy.stop();
    }, 60_000);

    it('of another form change nothing', async () => {
      await withPeers(leaseTable(postgres.url), leaseTable(postgres.url), async (holder, waiter) => {
        await waiter.listen();
        const [h1, w1] = [holder.ticket(), waiter.ticket()];
        asGranted(await holder.enqueue('odd message', h1));
        asBusy(await waiter.enqueue('odd message', w1));
        for (const payload of ['wanted t', 'grant', 'grant t 1 1 1 1 {', 'ends t 5 "', '', 'x'.repeat(7_000)]) {
          await database.query('SELECT pg_notify($1, $2)', [`nest_redis_lock:${waiter.process}`, payload]);
        }
        await holder.backend.release({ name: 'odd message', ticket: h1 });
        expect(await waiter.granted(w1)).toMatchObject({ name: 'odd message' });
      });
    });

    it('are not relied upon for a name that they cannot carry', async () => {
      await withPeers(leaseTable(postgres.url), leaseTable(postgres.url), async (holder, waiter) => {
        await waiter.listen();
        for (const [wanted, unreached] of [
          ['n'.repeat(7_000), undefined],
          ['n'.repeat(8_000), true],
          ['é'.repeat(1_400), true],
        ] as const) {
          asGranted(await holder.enqueue(wanted, holder.ticket()));
          expect(asBusy(await waiter.enqueue(wanted, waiter.ticket())).unreached).toBe(unreached);
        }
      });
    });
  });

  it('waits for any name in a database that is not UTF-8', async () => {
    await database.query(`CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`);
    const url = postgres.url.replace(/\/[^/]*$/, '/latin');
    const [one, two] = [
      await startLockApp({ backend: leaseTable(url) }),
      await startLockApp({ backend: leaseTable(url) }),
    ];
    for (const wanted of ['订单:7', 'ключ', '🔒', 'é']) {
      const held = await one.locks.acquire(wanted);
      const waiting = two.locks.withLock(wanted, { wait: 20_000 }, async (lock) => lock.fencingToken);
      await eventually(async () => ((await one.locks.inspect(wanted))?.waiting ?? 0) > 0);
      await held.release();
      expect(await waiting).toBeGreaterThan(held.fencingToken);
    }
    await one.close();
    await two.close();
  });

  describe('the sweep', () => {
    const idle = async (wanted: string) => {
      const text = `UPDATE nest_redis_lock.locks SET expires_at = expires_at - interval '60 d' WHERE key = $1`;
      await database.query(text, [lockKey(undefined, wanted)]);
    };
    const sweeper = (fenceTtl: number) => {
      const link = new PostgresLink(postgres.url);
      const notices: Notice[] = [];
      link.listeners.add({ commandTimeout: 1_000, report: (notice) => notices.push(notice) });
      return { link, notices, sweeper: leaseSweeper(new LeaseTable(link, 'nest_redis_lock', false), fenceTtl) };
    };
    const days = (count: number) => count * 24 * 60 * 60_000;

    it('keeps a row whose tokens are ahead of the clock, so that the next token is higher', async () => {
      const backend = openBackend(leaseTable(postgres.url));
      const request = { name: 'ahead', ticket: 'p:1', ttl: TTL } as const;
      const answer = await backend.acquire(request);
      if (answer.status !== 'granted') throw new Error('not granted');
      const ahead = answer.tokens.first + 3_600_000_000;
      const minted = await backend.mint({ name: 'ahead', ticket: 'p:1', leastToken: ahead });
      expect(minted?.first).toBeGreaterThanOrEqual(ahead);
      await backend.release(request);
      await idle('ahead');
      const { link, sweeper: each } = sweeper(days(1));
      await each.sweep();
      await link.close();
      const next = await backend.acquire({ ...request, ticket: 'p:2' });
      expect(next.status === 'granted' && next.tokens.first).toBeGreaterThan(ahead);
      await backend.close();
    });

    it('deletes the rows of names that were not used for 30 days', async () => {
      const app = await startLockApp({ backend: leaseTable(postgres.url) });
      await app.locks.withLock('old', async () => {});
      await app.close();
      await idle('old');
      const { link, notices, sweeper: each } = sweeper(days(30));
      await each.sweep();
      await link.close();
      expect(notices).toEqual([]);
      expect(
        (await database.query('SELECT 1 FROM nest_redis_lock.locks WHERE key = $1', [lockKey(undefined, 'old')])).rows,
      ).toEqual([]);
    });

    it('reports once that it fails', async () => {
      const { link, notices, sweeper: each } = sweeper(Number.MAX_VALUE);
      await each.sweep();
      await each.sweep();
      await link.close();
      expect(notices.map(({ message }) => message)).toEqual([
        expect.stringMatching(/^PostgreSQL at 127\.0\.0\.1:\d+.*; the rows of unused names are not deleted$/),
      ]);
    });
  });

  it('takes no single client, which only one call at a time can use', () => {
    expect(() => leaseTable(new pg.Client() as never)).toThrow(
      new LockConfigError(
        'Option "connection" is "a single Client"; give a Pool of pg, options for one, or a postgres:// URL',
      ),
    );
  });

  describe("a connection of the application's pool that is still in a transaction", () => {
    it('grants nothing, is closed, and is named as the cause', async () => {
      const pool = new pg.Pool({ connectionString: postgres.url, max: 1 });
      await withPeers(leaseTable(pool), leaseTable(postgres.url), async (one, other) => {
        await started(one.backend);
        const client = await pool.connect();
        await client.query('BEGIN');
        client.release();
        const ask = (each: QueuePeer) => each.enqueue('in transaction', each.ticket());
        await expect(ask(one)).rejects.toThrow(
          'a connection of the pool came back while its transaction was open; COMMIT or ROLLBACK before "release()"',
        );
        asGranted(await ask(other));
        asBusy(await ask(one));
      });
      await pool.end();
    });
  });

  it('leaves a connection on which the server refused a statement, as after a demotion to standby', async () => {
    await using app = await startLockApp({ backend: leaseTable(postgres.url) });
    const { locks } = app;
    const admin = new pg.Client({ connectionString: postgres.url });
    await admin.connect();
    const readOnly = (is: string) => admin.query(`ALTER DATABASE postgres SET default_transaction_read_only = ${is}`);
    try {
      await readOnly('on');
      await admin.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nest-redis-lock'`,
      );
      const tries = async () => {
        const outcomes: boolean[] = [];
        for (let tried = 0; tried < 5; tried++) {
          await sleep(50);
          const lock = await locks.tryAcquire('demoted').catch(() => null);
          outcomes.push(lock !== null);
          await lock?.release();
        }
        return outcomes;
      };
      expect(await tries()).toEqual([false, false, false, false, false]);
      await readOnly('off');
      // A connection that was opened before may be tried once.
      expect((await tries()).slice(1)).toEqual([true, true, true, true]);
    } finally {
      await admin.query('ALTER DATABASE postgres RESET default_transaction_read_only');
      await admin.end();
    }
  });
});

describe('a lease that ends after more milliseconds than an "int" counts', () => {
  startLeaseTable();

  it('shows the largest "int", where the clock of the server was set back', async () => {
    const { locks, close } = await startLockApp({ backend: leaseTable(server.url) });
    const names = ['ahead:1', 'ahead:2'];
    for (const each of names) await locks.withLock(each, async () => {});
    await db.query(
      `UPDATE nest_redis_lock.locks SET owner = 'other:1', expires_at = now() + interval '90 days'
      WHERE key IN ($1, $2)`,
      names.map((each) => lockKey(undefined, each)),
    );
    for (const key of ['ahead:1', names]) {
      expect((await locks.tryAcquire(key)) === null).toBe(true);
      await expect(locks.acquire(key, { wait: 200 })).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    }
    expect(await locks.isLocked('ahead:1')).toBe(true);
    expect(await locks.inspect('ahead:1')).toMatchObject({ owner: 'other:1', ttl: 2 ** 31 - 1 });
    expect(await locks.forceRelease('ahead:1')).toBe(true);
    await close();
  });

  it('is no longer than that for a long minimum hold', async () => {
    const { locks, close } = await startLockApp({ backend: leaseTable(server.url) });
    for (const key of ['long:1', ['long:2', 'long:3']]) {
      const lock = await locks.acquire(key, { minHold: 2 ** 31 - 1, ttl: 2 ** 31 - 1, wait: 0 });
      await lock.release();
    }
    expect((await locks.inspect('long:1'))?.ttl).toBeGreaterThan(2_147_000_000);
    await close();
  });
});

describe('the queue that inspect shows', () => {
  startLeaseTable();

  it('shows who waits on PostgreSQL, in order', async () => {
    await expectWaitersInOrder(() => leaseTable(server.url));
  });

  it('ends after 100 places, and leaves out a process that gave no sign of life', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const c = await peer();
    const tickets = Array.from({ length: 110 }, () => c.ticket());
    for (const ticket of tickets) await c.enqueue(name, ticket);
    // A busy machine may have taken long.
    await db.query('UPDATE nest_redis_lock.waiters SET seen_at = clock_timestamp()');
    await silence(a1, 6_000);
    const state = await a.backend.inspect({ name });
    expect(state).toMatchObject({ owner: b1, waiting: 111 });
    expect(state?.waiters).toEqual(tickets.slice(0, 100).map((ticket) => ({ ticket })));
    await b.release(name, b1);
  });
});
