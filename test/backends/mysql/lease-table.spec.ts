import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createPool as createCallbackPool } from 'mysql2';
import { createPool, type Pool } from 'mysql2/promise';
import { getLock, leaseTable } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { type MariadbServer, startMariadbServer } from '../../support/servers/mariadb-server.js';
import { openBackend, type OpenBackend } from '../../support/open-backend.js';

describe('the lease table', () => {
  let server: MariadbServer;
  let pool: Pool;
  let backend: OpenBackend;
  beforeAll(async () => {
    server = await startMariadbServer();
    pool = createPool({ uri: server.url, connectionLimit: 5 });
    backend = openBackend(leaseTable(server.url));
  }, 60_000);
  afterAll(async () => {
    await backend.close();
    await pool.end();
    await server.stop();
  });

  const newTicket = () => `${randomUUID()}:1`;
  const newName = () => `name-${randomUUID()}`;

  /** Takes the name, and answers the ticket, the first token and whether others wait. */
  async function take(name: string, { ttl = 10_000, ticket = newTicket(), leastToken = 0, on = backend } = {}) {
    const answer = await on.acquire({ name, ticket, ttl, leastToken });
    return { ticket, answer, first: answer.status === 'granted' ? answer.tokens.first : 0 };
  }

  describe('one name', () => {
    it('has one owner until it is released', async () => {
      const name = newName();
      const { ticket } = await take(name);
      const refused = await take(name);
      expect(refused.answer).toMatchObject({ status: 'busy', owner: ticket, name });
      expect(await backend.release({ name, ticket: refused.ticket })).toMatchObject({ status: 'taken' });
      expect(await backend.release({ name, ticket })).toEqual({ status: 'released', resent: false });
      expect(await backend.release({ name, ticket })).toMatchObject({ status: 'gone' });
      expect((await take(name)).answer.status).toBe('granted');
    });

    it('is granted again to the ticket that owns it, for the lease that is left at least', async () => {
      const name = newName();
      const { ticket, first } = await take(name, { ttl: 60_000 });
      const again = await take(name, { ticket, ttl: 100 });
      expect(again.first).toBeGreaterThan(first + 127);
      expect((await backend.inspect({ name }))?.ttl).toBeGreaterThan(50_000);
    });

    it('falls free when its lease has ended, and then cannot be renewed', async () => {
      const name = newName();
      const { ticket, answer } = await take(name, { ttl: 100 });
      expect(answer).toMatchObject({ remaining: 100, waiting: undefined });
      await eventually(async () => (await backend.inspect({ name })) === null);
      expect(await backend.renew([{ name, ticket, ttl: 1_000 }])[0]).toEqual({ status: 'not-owner' });
      expect(await backend.mint({ name, ticket, leastToken: 0 })).toBeNull();
      expect(await backend.release({ name, ticket })).toMatchObject({ status: 'gone' });
      expect((await take(name)).answer.status).toBe('granted');
    });

    it('is renewed for the requested time, never for less than it has', async () => {
      const names = [newName(), newName(), newName()] as const;
      const [long, short, foreign] = await Promise.all(
        names.map((name, index) => take(name, { ttl: [60_000, 1_000, 1_000][index] ?? 0 })),
      );
      const answers = await Promise.all(
        backend.renew([
          { name: names[0], ticket: long?.ticket ?? '', ttl: 1 },
          { name: names[1], ticket: short?.ticket ?? '', ttl: 30_000 },
          { name: names[2], ticket: newTicket(), ttl: 30_000 },
        ]),
      );
      expect(answers).toEqual([
        { status: 'renewed', remaining: expect.any(Number), waiting: 0 },
        { status: 'renewed', remaining: 30_000, waiting: 0 },
        { status: 'not-owner' },
      ]);
      expect(answers[0]?.status === 'renewed' && answers[0].remaining).toBeGreaterThan(50_000);
      expect((await backend.inspect({ name: names[1] }))?.ttl).toBeGreaterThan(20_000);
      expect((await backend.inspect({ name: names[2] }))?.owner).toBe(foreign?.ticket);
    });

    it('stays taken for a minimum hold that is shorter than the lease', async () => {
      const name = newName();
      const { ticket } = await take(name, { ttl: 60_000 });
      const other = newTicket();
      expect(await backend.keep?.({ name, ticket: other, rest: 1 })).toMatchObject({ status: 'taken' });
      expect(await backend.keep?.({ name, ticket, rest: 90_000 })).toMatchObject({ status: 'released' });
      expect((await backend.inspect({ name }))?.ttl).toBeLessThanOrEqual(60_000);
      expect(await backend.keep?.({ name, ticket, rest: 200 })).toMatchObject({ status: 'released' });
      expect((await take(name)).answer.status).toBe('busy');
      await eventually(async () => (await take(name)).answer.status === 'granted');
    });

    it('is taken from its owner by force', async () => {
      const name = newName();
      const { ticket } = await take(name);
      expect(await backend.forceRelease?.({ name })).toBe(ticket);
      expect(await backend.forceRelease?.({ name })).toBeNull();
      expect(await backend.renew([{ name, ticket, ttl: 1_000 }])[0]).toEqual({ status: 'not-owner' });
    });

    it('tells the label of its owner', async () => {
      const name = newName();
      const { ticket } = await take(name);
      const module = openBackend(backend, { process: ticket.slice(0, ticket.lastIndexOf(':')) });
      await module.label?.('shop@host 🛒', 60_000);
      expect(await backend.inspect({ name })).toMatchObject({ owner: ticket, label: 'shop@host 🛒', waiting: 0 });
      await module.label?.('', 0);
      expect(await backend.inspect({ name })).not.toHaveProperty('label');
    });
  });

  describe('fencing tokens', () => {
    it('rise with every grant and reservation, and begin at the one that is asked for', async () => {
      const name = newName();
      const { ticket, first } = await take(name);
      const minted = await backend.mint({ name, ticket, leastToken: first + 1_000_000_000 });
      expect(minted?.first).toBeGreaterThanOrEqual(first + 1_000_000_000);
      expect((await backend.inspect({ name }))?.fencingToken).toBeGreaterThanOrEqual((minted?.first ?? 0) + 127);
      await backend.release({ name, ticket });
      const next = await take(name);
      expect(next.first).toBeGreaterThan((minted?.first ?? 0) + 127);
      expect((await take(newName(), { leastToken: 2 ** 52 })).first).toBeGreaterThanOrEqual(2 ** 52);
    });

    it('rise after the row was deleted', async () => {
      const name = newName();
      const before = await take(name);
      await backend.release({ name, ticket: before.ticket });
      await pool.query('DELETE FROM nest_redis_lock');
      expect((await take(name)).first).toBeGreaterThan(before.first + 127);
    });
  });

  it.each([
    ['a NUL', 'a\u0000b', 'a'],
    ['a character of four bytes', 'a😀', 'a😁'],
    ['trailing blanks', 'a ', 'a'],
    ['case', 'Order', 'order'],
    ['an accent', 'é', 'e'],
    ['a slash', 'a/b', 'a'],
    ['quotes and backslashes', `a'b"c\\`, `a'b"c`],
    ['its end only, after 5,000 characters', `${'x'.repeat(5_000)}1`, `${'x'.repeat(5_000)}2`],
    ['half of a character', '\ud83d', '\ud83e'],
  ])('names that differ in %s are two', async (_what, one, other) => {
    const held = await take(one);
    expect((await take(one)).answer.status).toBe('busy');
    expect((await take(other)).answer.status).toBe('granted');
    expect((await backend.inspect({ name: one }))?.owner).toBe(held.ticket);
    await pool.query('DELETE FROM nest_redis_lock');
  });

  it('the names of one prefix are not those of another', async () => {
    const request = { name: 'same', ttl: 10_000 };
    const [none, shop, blog] = [newTicket(), newTicket(), newTicket()];
    const [ofShop, ofBlog] = ['shop', 'blog'].map((prefix) => openBackend(backend, { prefix })) as [
      OpenBackend,
      OpenBackend,
    ];
    expect((await backend.acquire({ ...request, ticket: none })).status).toBe('granted');
    expect((await ofShop.acquire({ ...request, ticket: shop })).status).toBe('granted');
    expect((await ofBlog.acquire({ ...request, ticket: blog })).status).toBe('granted');
    expect((await ofShop.inspect({ name: 'same' }))?.owner).toBe(shop);
  });

  describe('processes that wait', () => {
    it('are shown to the next owner and to one that renews, for a moment', async () => {
      const name = newName();
      const owner = await take(name);
      const [first, second] = [newTicket(), newTicket()];
      const waiting = async (ticket: string) => {
        const [renewed] = await Promise.all(backend.renew([{ name, ticket, ttl: 1 }]));
        return renewed?.status === 'renewed' ? renewed.waiting : undefined;
      };
      await eventually(async () => {
        await Promise.all([take(name, { ticket: first }), take(name, { ticket: second })]);
        return (await waiting(owner.ticket)) === 2;
      });
      await backend.release({ name, ticket: owner.ticket });
      expect((await take(name, { ticket: first })).answer).toMatchObject({ status: 'granted', waiting: 1 });
      await eventually(async () => (await waiting(first)) === 0);
    });

    it('do not count the new owner itself, nor later processes twice', async () => {
      const name = newName();
      const owner = await take(name);
      const waiter = newTicket();
      for (let tries = 0; tries < 3; tries += 1) await take(name, { ticket: waiter });
      expect(await backend.renew([{ name, ticket: owner.ticket, ttl: 1 }])[0]).toMatchObject({ waiting: 1 });
      await backend.release({ name, ticket: owner.ticket });
      expect((await take(name, { ticket: waiter })).answer).toMatchObject({ status: 'granted', waiting: undefined });
    });
  });
});

describe('a row that a transaction of somebody else keeps locked', () => {
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

  const takeAndRelease = async (on: OpenBackend, name: string) => {
    const ticket = newTicket();
    // A release that is refused while many wait for the row is not repeated here.
    const { status } = await on.acquire({ name, ticket, ttl: 3_000 });
    expect(status).toBe('granted');
    await on.release({ name, ticket });
  };

  it.each([
    ['after the server refused a statement on it', 1],
    ['after a statement on it had no answer for a while', 50],
  ])('goes apart from those of the other names, %s', async (_when, waitTimeout) => {
    const table = `locks_${waitTimeout}`;
    const { pool, sent } = spied(waitTimeout);
    const on = openBackend(leaseTable(pool, { table }));
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
        on.acquire({ name: stuck, ticket, ttl: 500 }).then(
          () => {},
          () => {},
        );
        await sleep(300);
        Promise.resolve(on.release({ name: stuck, ticket })).catch(() => {});
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
    const on = openBackend(leaseTable(pool, { table: 'freed' }));
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
    const on = openBackend(leaseTable(pool));
    const holds = Array.from({ length: 10 }, () => ({ name: `name-${randomUUID()}`, ticket: newTicket() }));
    await Promise.all(holds.map(({ name, ticket }) => on.acquire({ name, ticket, ttl: 5_000 })));
    const requests = holds.map(({ name, ticket }) => ({ name, ticket, ttl: TTL }));
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
    const on = openBackend(getLock(server.url, { sessions: 1 }));
    const [held, stuck] = [`name-${randomUUID()}`, `name-${randomUUID()}`];
    await takeAndRelease(on, stuck);
    const [rows] = await admin.query('SELECT id FROM nest_redis_lock_tokens');
    const ticket = newTicket();
    expect(await on.acquire({ name: held, ticket, ttl: TTL })).toMatchObject({ status: 'granted' });
    await whileLocked('nest_redis_lock_tokens', (rows as { id: Buffer }[])[0]?.id as Buffer, async () => {
      await expect(on.acquire({ name: stuck, ticket: newTicket(), ttl: TTL })).rejects.toMatchObject({
        code: 'ER_LOCK_WAIT_TIMEOUT',
      });
    });
    expect(await on.renew([{ name: held, ticket, ttl: TTL }])[0]).toMatchObject({ status: 'renewed' });
    await on.close();
  });
});
