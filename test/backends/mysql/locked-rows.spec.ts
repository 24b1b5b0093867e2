import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createPool as createCallbackPool } from 'mysql2';
import { createPool, type Pool } from 'mysql2/promise';
import type { LockBackend } from 'nest-redis-lock';
import { getLock, leaseTable } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { startMariadbServer, type MariadbServer } from '../../support/servers/mariadb-server.js';

let server: MariadbServer;
let admin: Pool;
beforeAll(async () => {
  server = await startMariadbServer();
  admin = createPool({ uri: server.url, connectionLimit: 5 });
}, 60_000);
afterAll(async () => {
  await admin.end();
  await server.stop();
});

const TTL = 60_000;
const newTicket = () => `${randomUUID()}:1`;

async function idOf(table: string, name: string): Promise<Buffer> {
  const [rows] = await admin.query(`SELECT id FROM ${table} WHERE name = ?`, [name]);
  return (rows as { id: Buffer }[])[0]?.id as Buffer;
}

/** Runs `use` while a transaction has one row locked. */
async function whileLocked(table: string, id: Buffer, use: () => Promise<void>): Promise<void> {
  const foreign = await admin.getConnection();
  await foreign.query('BEGIN');
  const [found] = await foreign.query(`SELECT id FROM ${table} WHERE id = ? FOR UPDATE`, [id]);
  expect(found).toHaveLength(1);
  try {
    await use();
  } finally {
    await foreign.query('ROLLBACK');
    foreign.release();
  }
}

/** A backend, and the texts of the statements that it has sent. */
function spied(waitTimeout: number) {
  const pool = createCallbackPool({ uri: server.url, connectionLimit: 10 });
  const sent: string[] = [];
  pool.on('connection', (connection) => {
    connection.query(`SET SESSION innodb_lock_wait_timeout = ${waitTimeout}`, () => {});
    const query = connection.query.bind(connection) as (...args: unknown[]) => unknown;
    connection.query = ((options: { sql: string }, answered: unknown) => {
      sent.push(options.sql);
      return query(options, answered);
    }) as never;
  });
  return { pool, sent };
}

/** The rows that a statement names. */
const idsOf = (sql: string) => new Set(sql.match(/x'[0-9a-f]{64}'/g));

const takeAndRelease = async (on: LockBackend, name: string) => {
  const ticket = newTicket();
  // A release that is refused while many wait for the row is not repeated here.
  const { status } = await on.acquire({ names: [name], ticket, ttl: 3_000 });
  expect(status).toBe('granted');
  await on.release({ names: [name], ticket });
};

describe('a row that a transaction of somebody else keeps locked', () => {
  it.each([
    ['after the server refused a statement on it', 1],
    ['after a statement on it had no answer for a while', 50],
  ])('goes apart from those of the other names, %s', async (_when, waitTimeout) => {
    const table = `locks_${waitTimeout}`;
    const { pool, sent } = spied(waitTimeout);
    const on = leaseTable(pool, { table });
    const names = Array.from({ length: 20 }, () => `name-${randomUUID()}`);
    const stuck = names[9] as string;
    await Promise.all(names.map((name) => takeAndRelease(on, name)));
    const id = await idOf(table, stuck);
    const key = id.toString('hex');
    const others = names.filter((name) => name !== stuck);
    const over = new AbortController();
    // A ticket after the other wants the name, and is given up before it is answered.
    const want = async () => {
      while (!over.signal.aborted) {
        const ticket = newTicket();
        on.acquire({ names: [stuck], ticket, ttl: 500 }).then(
          () => {},
          () => {},
        );
        await sleep(300);
        Promise.resolve(on.release({ names: [stuck], ticket })).catch(() => {});
      }
    };
    await whileLocked(table, id, async () => {
      const first = Promise.all(names.map((name) => takeAndRelease(on, name).catch(() => {})));
      await sleep(50);
      /** The longest cycle of the other names. */
      const cycles = async (ms: number) => {
        let longest = 0;
        const end = performance.now() + ms;
        const cycle = async (name: string) => {
          while (performance.now() < end) {
            const began = performance.now();
            await takeAndRelease(on, `${name}:later`);
            longest = Math.max(longest, performance.now() - began);
          }
        };
        await Promise.all(others.map(cycle));
        return longest;
      };
      await cycles(1_000);
      if (waitTimeout === 1) await first;
      const before = sent.length;
      const wanting = want();
      const longest = await cycles(2_000);
      const onStuck = sent.slice(before).filter((sql) => idsOf(sql).has(`x'${key}'`));
      expect(onStuck.filter((sql) => idsOf(sql).size > 1)).toEqual([]);
      expect(longest).toBeLessThan(1_000);
      over.abort();
      await wanting;
    });
    await eventually(() =>
      takeAndRelease(on, stuck).then(
        () => true,
        () => false,
      ),
    );
    await on.close();
    await pool.promise().end();
  });

  it('shares statements again once it is free', async () => {
    const { pool, sent } = spied(1);
    const on = leaseTable(pool, { table: 'freed' });
    const names = Array.from({ length: 10 }, () => `name-${randomUUID()}`);
    await Promise.all(names.map((name) => takeAndRelease(on, name)));
    const id = await idOf('freed', names[4] as string);
    await whileLocked('freed', id, async () => {
      const answers = await Promise.allSettled(names.map((name) => takeAndRelease(on, name)));
      expect(answers.map(({ status }) => status === 'rejected')).toEqual(names.map((_name, index) => index === 4));
    });
    await Promise.all(names.map((name) => takeAndRelease(on, name)));
    sent.length = 0;
    await Promise.all(['a', ...names].map((name) => takeAndRelease(on, name)));
    const shared = sent.filter((sql) => sql.includes(id.toString('hex')));
    expect(shared.every((sql) => idsOf(sql).size > 1)).toBe(true);
    await on.close();
    await pool.promise().end();
  });

  it('fails its own renewal, and no other of its batch', async () => {
    const { pool, sent } = spied(1);
    const on = leaseTable(pool);
    const holds = Array.from({ length: 10 }, () => ({ name: `name-${randomUUID()}`, ticket: newTicket() }));
    await Promise.all(holds.map(({ name, ticket }) => on.acquire({ names: [name], ticket, ttl: 5_000 })));
    const requests = holds.map(({ name, ticket }) => ({ names: [name], ticket, ttl: TTL }));
    const renewAll = () => Promise.allSettled(on.renew(requests).map((pending) => Promise.resolve(pending)));
    const expected = holds.map((_hold, index) => (index === 3 ? 'ER_LOCK_WAIT_TIMEOUT' : 'renewed'));
    const outcomesOf = (answers: Awaited<ReturnType<typeof renewAll>>) =>
      answers.map((answer) =>
        answer.status === 'fulfilled' ? answer.value.status : (answer.reason as { code: string }).code,
      );
    await whileLocked('nest_redis_lock', await idOf('nest_redis_lock', holds[3]?.name ?? ''), async () => {
      expect(outcomesOf(await renewAll())).toEqual(expected);
      sent.length = 0;
      expect(outcomesOf(await renewAll())).toEqual(expected);
      // The others share one statement, without it.
      const renewing = sent.filter((sql) => sql.startsWith('UPDATE')).map((sql) => idsOf(sql).size);
      expect(renewing.toSorted((a, b) => a - b)).toEqual([1, 9]);
    });
    expect(outcomesOf(await renewAll())).toEqual(holds.map(() => 'renewed'));
    await on.close();
    await pool.promise().end();
  });

  it('of the fencing tokens of GET_LOCK ends no session', async () => {
    const on = getLock(server.url, { sessions: 1 });
    const [held, stuck] = [`name-${randomUUID()}`, `name-${randomUUID()}`];
    await takeAndRelease(on, stuck);
    const [rows] = await admin.query('SELECT id FROM nest_redis_lock_tokens');
    const ticket = newTicket();
    expect(await on.acquire({ names: [held], ticket, ttl: TTL })).toMatchObject({ status: 'granted' });
    await whileLocked('nest_redis_lock_tokens', (rows as { id: Buffer }[])[0]?.id as Buffer, async () => {
      await expect(on.acquire({ names: [stuck], ticket: newTicket(), ttl: TTL })).rejects.toMatchObject({
        code: 'ER_LOCK_WAIT_TIMEOUT',
      });
    });
    expect(await on.renew([{ names: [held], ticket, ttl: TTL }])[0]).toMatchObject({ status: 'renewed' });
    await on.close();
  });
});
