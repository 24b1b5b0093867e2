import { randomUUID } from 'node:crypto';
import { createPool as createCallbackPool } from 'mysql2';
import { createPool, type Pool, type PoolOptions } from 'mysql2/promise';
import type { AcquireAnswer } from 'nest-redis-lock/backend';
import { leaseTable } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startMariadbServer, type MariadbServer } from '../../support/servers/mariadb-server.js';
import { openBackend, type OpenBackend } from '../../support/open-backend.js';

let server: MariadbServer;
let admin: Pool;
let backend: OpenBackend;
beforeAll(async () => {
  server = await startMariadbServer();
  admin = createPool({ uri: server.url, connectionLimit: 5 });
  backend = openBackend(leaseTable(server.url));
}, 60_000);
afterAll(async () => {
  await backend.close();
  await admin.end();
  await server.stop();
});

interface Held {
  readonly name: string;
  readonly ticket: string;
}

const newTicket = () => `${randomUUID()}:1`;
const newNames = (count: number) => Array.from({ length: count }, () => `name-${randomUUID()}`);
const newHolds = (count: number): Held[] => newNames(count).map((name) => ({ name, ticket: newTicket() }));

const take = ({ name, ticket }: Held, { ttl = 60_000, on = backend } = {}): Promise<AcquireAnswer> =>
  Promise.resolve(on.acquire({ name, ticket, ttl }));
const takeAll = (holds: readonly Held[], settings = {}) => Promise.all(holds.map((hold) => take(hold, settings)));
const releaseAll = (holds: readonly Held[], on = backend) =>
  Promise.all(holds.map(({ name, ticket }) => on.release({ name, ticket })));
const statusesOf = (answers: readonly { status: string }[]) => answers.map(({ status }) => status);
const everyOne = (status: string, count: number) => Array.from({ length: count }, () => status);
const firstOf = (answer: AcquireAnswer | undefined) => (answer?.status === 'granted' ? answer.tokens.first : NaN);

/** How many statements the server has run that change rows. */
async function changes(): Promise<number> {
  const [rows] = await admin.query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_insert', 'Com_update')");
  return (rows as { Value: string }[]).reduce((sum, { Value }) => sum + Number(Value), 0);
}

/** A backend that runs `act` once, before it sends the first statement that `pattern` matches and that has `part`. */
function interrupted(pattern: RegExp, act: () => Promise<unknown>, part = '') {
  const pool = createCallbackPool({ uri: server.url, connectionLimit: 5 });
  let acted = false;
  pool.on('connection', (connection) => {
    const query = connection.query.bind(connection) as (...args: unknown[]) => unknown;
    connection.query = ((options: { sql: string }, answered: unknown) => {
      const now = !acted && pattern.test(options.sql) && options.sql.includes(part);
      acted ||= now;
      void (now ? act() : Promise.resolve()).then(() => void query(options, answered));
    }) as never;
  });
  return { on: openBackend(leaseTable(pool)), acted: () => acted, end: () => pool.promise().end() };
}

describe('calls of one turn', () => {
  it('share statements, and the tokens of each name rise', async () => {
    const holds = newHolds(60);
    const before = await changes();
    const first = await takeAll(holds);
    expect(statusesOf(await releaseAll(holds))).toEqual(everyOne('released', 60));
    const again = await takeAll(holds.map(({ name }) => ({ name, ticket: newTicket() })));
    expect(statusesOf([...first, ...again])).toEqual(everyOne('granted', 120));
    for (const [index, answer] of again.entries()) expect(firstOf(answer)).toBeGreaterThan(firstOf(first[index]) + 127);
    expect((await changes()) - before).toBeLessThan(20);
  });

  it('are answered each for itself', async () => {
    const holds = newHolds(12);
    const [fresh, free, foreign, wanted, ahead, ...others] = holds as [Held, Held, Held, Held, Held, ...Held[]];
    const owners = [free, foreign, wanted, ahead, ...others].map(({ name }) => ({ name, ticket: newTicket() }));
    await takeAll(owners);
    await take({ name: wanted.name, ticket: newTicket() });
    const aheadOwner = { name: ahead.name, ticket: owners[3]?.ticket ?? '' };
    const minted = await backend.mint({ ...aheadOwner, leastToken: 2 ** 52 });
    await releaseAll(owners.filter(({ name }) => name !== foreign.name));
    const answers = await takeAll(holds);
    expect(statusesOf(answers.filter((_answer, index) => index !== 2))).toEqual(everyOne('granted', 11));
    expect(answers[2]).toMatchObject({ status: 'busy', name: foreign.name, owner: owners[1]?.ticket });
    expect(answers[3]).toMatchObject({ waiting: 1 });
    expect(firstOf(answers[4])).toBeGreaterThan((minted?.first ?? Infinity) + 127);
    expect(firstOf(answers[0])).toBeLessThan(2 ** 52);
    const owned = await Promise.all(holds.map(({ name }) => backend.inspect({ name })));
    expect(owned.map((state) => state?.owner)).toEqual(
      holds.map(({ ticket }, index) => (index === 2 ? owners[1]?.ticket : ticket)),
    );
    expect(fresh.ticket).toBe(owned[0]?.owner);
  });

  it('get the lease that each asks for', async () => {
    for (const holds of [newHolds(10), newHolds(10)]) {
      await releaseAll(holds);
      for (let round = 0; round < 2; round += 1) {
        const ttls = holds.map((_hold, index) => (index + 1) * 10_000);
        const answers = await Promise.all(holds.map((hold, index) => take(hold, { ttl: ttls[index] ?? 0 })));
        expect(answers.map((answer) => answer.remaining)).toEqual(ttls);
        const states = await Promise.all(holds.map(({ name }) => backend.inspect({ name })));
        for (const [index, ttl] of ttls.entries()) {
          expect(states[index]?.ttl).toBeGreaterThan(ttl - 5_000);
          expect(states[index]?.ttl).toBeLessThanOrEqual(ttl);
        }
        await takeAll(holds, { ttl: 1 });
        const owned = await Promise.all(holds.map(({ name }) => backend.inspect({ name })));
        for (const state of owned) expect(state?.ttl).toBeGreaterThan(5_000);
        await releaseAll(holds);
      }
    }
  });

  it('for one name have one owner, and a ticket that asks twice gets two ranges of tokens', async () => {
    const names = newNames(10);
    const twice = names.map((name) => ({ name, ticket: newTicket() }));
    const rivals = names.map((name) => ({ name, ticket: newTicket() }));
    const answers = await takeAll([...twice, ...twice, ...rivals]);
    const granted = new Map<string, number[]>();
    for (const [index, answer] of answers.entries()) {
      if (answer.status !== 'granted') continue;
      const { name, ticket } = [...twice, ...twice, ...rivals][index] as Held;
      const key = `${name} ${ticket}`;
      granted.set(key, [...(granted.get(key) ?? []), answer.tokens.first]);
    }
    expect(new Set([...granted.keys()].map((key) => key.split(' ')[0])).size).toBe(10);
    expect(granted.size).toBe(10);
    for (const firsts of granted.values()) {
      const [lower = 0, upper = Infinity] = firsts.toSorted((a, b) => a - b);
      expect(upper).toBeGreaterThan(lower + 127);
    }
  });

  it('of two processes for the same names never both own one', async () => {
    const rival = openBackend(leaseTable(server.url));
    const names = newNames(40);
    const last = new Map<string, number>();
    let granted = 0;
    for (let round = 0; round < 25; round += 1) {
      const sides = await Promise.all(
        [backend, rival].map(async (on) => {
          const holds = names.map((name) => ({ name, ticket: newTicket() }));
          const answers = await takeAll(holds, { on });
          return { on, holds: holds.filter((_hold, index) => answers[index]?.status === 'granted'), answers };
        }),
      );
      for (const [index, name] of names.entries()) {
        const firsts = sides.map(({ answers }) => firstOf(answers[index])).filter((first) => first > 0);
        expect(firsts.length).toBeLessThanOrEqual(1);
        for (const first of firsts) {
          expect(first).toBeGreaterThan((last.get(name) ?? 0) + 127);
          last.set(name, first);
        }
        granted += firsts.length;
      }
      for (const { on, holds } of sides) {
        expect(statusesOf(await releaseAll(holds, on))).toEqual(everyOne('released', holds.length));
      }
    }
    expect(granted).toBeGreaterThan(500);
    await rival.close();
  });
});

describe('takes of one turn that another process comes between', () => {
  it.each([
    ['taken', /^UPDATE(?=[^]*GREATEST)/, true],
    ['made', /^INSERT/, false],
  ])('are granted but for the row that was %s', async (_what, pattern, rows) => {
    const holds = newHolds(8);
    if (rows) {
      const owners = holds.map(({ name }) => ({ name, ticket: newTicket() }));
      await takeAll(owners);
      await releaseAll(owners);
    }
    const rival = { name: holds[3]?.name ?? '', ticket: newTicket() };
    const row = rows ? '' : Buffer.from(rival.name).toString('hex');
    const { on, acted, end } = interrupted(pattern, () => take(rival), row);
    // The first one goes alone, and the others together.
    const answers = await takeAll([...newHolds(1), ...holds], { on });
    expect(acted()).toBe(true);
    expect(answers[4]).toMatchObject({ status: 'busy', owner: rival.ticket });
    expect(statusesOf(answers.toSpliced(4, 1))).toEqual(everyOne('granted', 8));
    expect(statusesOf(await releaseAll(holds.toSpliced(3, 1)))).toEqual(everyOne('released', 7));
    await end();
  });
});

describe('releases of one turn', () => {
  it.each([
    ['', {}],
    [', also where the pool counts changed rows', { flags: ['-FOUND_ROWS'] }],
  ])('say which names the tickets did not own%s', async (_where, options: PoolOptions) => {
    const pool = createPool({ uri: server.url, ...options });
    const on = openBackend(leaseTable(pool));
    const holds = newHolds(10);
    const [unknown, ended, forced, foreign, ...owned] = holds as [Held, Held, Held, Held, ...Held[]];
    await takeAll([forced, foreign, ...owned]);
    await take(ended, { ttl: 1 });
    await backend.forceRelease?.({ name: forced.name });
    await backend.forceRelease?.({ name: foreign.name });
    await take({ name: foreign.name, ticket: newTicket() });
    await eventually(async () => (await backend.inspect({ name: ended.name })) === null);
    const [, ...answers] = await releaseAll([...newHolds(1), ...holds], on);
    expect(answers[0]).toEqual({ status: 'gone', resent: true });
    expect(answers[1]).toEqual({ status: 'gone', resent: false });
    expect(answers[2]).toEqual({ status: 'gone', resent: false });
    expect(answers[3]).toEqual({ status: 'taken', resent: false });
    for (const answer of answers.slice(4)) expect(answer).toEqual({ status: 'released', resent: false });
    expect(await backend.inspect({ name: unknown.name })).toBeNull();
    expect(await backend.inspect({ name: foreign.name })).not.toBeNull();
    const none = await releaseAll([...newHolds(1), ...holds], on);
    expect(statusesOf(none)).toEqual(['gone', ...answers.map((_answer, index) => (index === 3 ? 'taken' : 'gone'))]);
    expect(none.every(({ resent }) => !resent)).toBe(true);
    await pool.end();
  });

  it('tell nothing of a name that another process took or released before they were looked at', async () => {
    const holds = newHolds(6);
    const [taken, passed] = holds as [Held, Held];
    await takeAll(holds.slice(0, 5));
    const { on, acted, end } = interrupted(/LOCK IN SHARE MODE/, async () => {
      const [next, brief] = [taken, passed].map(({ name }) => ({ name, ticket: newTicket() })) as [Held, Held];
      await take(next);
      await take(brief);
      await releaseAll([brief]);
    });
    const [, ...answers] = await releaseAll([...newHolds(1), ...holds], on);
    expect(acted()).toBe(true);
    expect(answers[0]).toEqual({ status: 'taken', resent: true });
    expect(answers[1]).toEqual({ status: 'gone', resent: true });
    expect(statusesOf(answers.slice(2))).toEqual(['released', 'released', 'released', 'gone']);
    await end();
  });

  it('end a name that its own ticket took again meanwhile', async () => {
    const holds = newHolds(5);
    await takeAll(holds.slice(0, 4));
    const { on, end } = interrupted(/LOCK IN SHARE MODE/, () => take(holds[1] as Held));
    const [, ...answers] = await releaseAll([...newHolds(1), ...holds], on);
    expect(statusesOf(answers)).toEqual([...everyOne('released', 4), 'gone']);
    expect(await backend.inspect({ name: holds[1]?.name ?? '' })).toBeNull();
    await end();
  });

  it('that are sent twice are answered', async () => {
    const holds = newHolds(10);
    await takeAll(holds);
    const answers = await releaseAll([...newHolds(1), ...holds, ...holds]);
    expect(statusesOf(answers.slice(1, 11))).toEqual(everyOne('released', 10));
  });
});

describe('a transaction of somebody else', () => {
  /** Runs `use` while a transaction has the row of the name locked, and no other. */
  async function locked(table: string, name: string, use: () => Promise<void>): Promise<void> {
    const foreign = await admin.getConnection();
    const [rows] = await foreign.query(`SELECT id FROM ${table} WHERE name = ?`, [name]);
    await foreign.query('BEGIN');
    const [found] = await foreign.query(`SELECT id FROM ${table} WHERE id = ? FOR UPDATE`, [
      (rows as { id: Buffer }[])[0]?.id,
    ]);
    expect(found).toHaveLength(1);
    await use();
    await foreign.query('ROLLBACK');
    foreign.release();
  }

  it('that locks one row fails the call for it, and no other of its turn', async () => {
    const holds = newHolds(10);
    await takeAll(holds);
    await locked('nest_redis_lock', holds[4]?.name ?? '', async () => {
      const ends = await Promise.allSettled([...newHolds(1), ...holds].map((hold) => releaseAll([hold])));
      expect(ends[5]).toMatchObject({ status: 'rejected', reason: { code: 'ER_LOCK_WAIT_TIMEOUT' } });
      expect(statusesOf(ends.toSpliced(5, 1))).toEqual(everyOne('fulfilled', 10));
    });
    await releaseAll(holds);
    await locked('nest_redis_lock', holds[4]?.name ?? '', async () => {
      const ends = await Promise.allSettled([...newHolds(1), ...holds].map((hold) => take(hold)));
      expect(ends[5]).toMatchObject({ status: 'rejected', reason: { code: 'ER_LOCK_WAIT_TIMEOUT' } });
      expect(ends.filter((end) => end.status === 'fulfilled' && end.value.status === 'granted')).toHaveLength(10);
    });
  }, 60_000);

  it('that locks another row delays no call', async () => {
    const on = openBackend(leaseTable(server.url, { table: 'small' }));
    const [other, ...holds] = newHolds(30) as [Held, ...Held[]];
    await takeAll([other, ...holds], { on });
    await releaseAll(holds, on);
    await locked('small', other.name, async () => {
      expect(statusesOf(await takeAll(holds, { on }))).toEqual(everyOne('granted', 29));
      const renewed = on.renew(holds.map(({ name, ticket }) => ({ name, ticket, ttl: 60_000 })));
      expect(statusesOf(await Promise.all(renewed))).toEqual(everyOne('renewed', 29));
      expect(statusesOf(await releaseAll(holds, on))).toEqual(everyOne('released', 29));
    });
    await on.close();
  });
});

it.each([
  ['counts changed rows instead of found ones', { flags: ['-FOUND_ROWS'] }, 'SET @nothing = 1'],
  ['returns big numbers as text', { supportBigNumbers: true, bigNumberStrings: true, dateStrings: true }, 'DO 1'],
  ['returns rows as arrays', { rowsAsArray: true, typeCast: false }, 'DO 1'],
  ['assigns all columns at once', {}, "SET sql_mode = 'SIMULTANEOUS_ASSIGNMENT'"],
  ['reads texts in another way', {}, "SET sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION'"],
  ['is at another isolation level', {}, "SET tx_isolation = 'SERIALIZABLE'"],
  ['speaks another character set', {}, 'SET NAMES latin1'],
])('a pool of the application may be one that %s', async (_what, options: PoolOptions, setting) => {
  const pool = createPool({ uri: server.url, connectionLimit: 1, ...options });
  await pool.query(setting);
  const table = `t${randomUUID().slice(0, 8)}`;
  const on = openBackend(leaseTable(pool, { table }));
  const ticket = () => `${randomUUID()}-ß😀:1`;
  let before: readonly AcquireAnswer[] = [];
  for (let round = 0; round < 3; round += 1) {
    const holds = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => ({ name, ticket: ticket() }));
    const answers = await takeAll(holds, { on });
    expect(statusesOf(answers)).toEqual(everyOne('granted', 6));
    for (const [index, answer] of before.entries()) {
      expect(firstOf(answers[index])).toBeGreaterThan(firstOf(answer) + 127);
    }
    before = answers;
    const rivals = holds.map(({ name }) => ({ name, ticket: ticket() }));
    const refused = await takeAll(rivals, { on });
    expect(refused.map((answer) => answer.status === 'busy' && answer.owner)).toEqual(holds.map((hold) => hold.ticket));
    expect(statusesOf(await releaseAll(rivals, on))).toEqual(everyOne('taken', 6));
    expect(statusesOf(await releaseAll(holds, on))).toEqual(everyOne('released', 6));
  }
  await pool.end();
});

it('a connection that is cut in mid batch fails its calls, and grants no token twice', async () => {
  const proxy = await FaultProxy.start(server.port);
  const on = openBackend(leaseTable(`mysql://root@127.0.0.1:${proxy.port}/test`));
  const holds = newHolds(20);
  await takeAll(holds, { on });
  await releaseAll(holds, on);
  const before = await takeAll(holds, { on });
  await releaseAll(holds, on);
  proxy.hold('reply');
  const taking = Promise.allSettled(holds.map((hold) => take(hold, { on })));
  await eventually(async () => (await backend.inspect({ name: holds[19]?.name ?? '' })) !== null);
  const lost = await Promise.all(holds.map(({ name }) => backend.inspect({ name })));
  proxy.reset();
  proxy.heal();
  expect(statusesOf(await taking)).toEqual(everyOne('rejected', 20));
  const again = await takeAll(holds, { on });
  expect(statusesOf(again)).toEqual(everyOne('granted', 20));
  for (const [index, answer] of again.entries()) {
    expect(firstOf(answer)).toBeGreaterThan(Math.max(lost[index]?.fencingToken ?? 0, firstOf(before[index]) + 127));
  }
  expect(statusesOf(await releaseAll(holds, on))).toEqual(everyOne('released', 20));
  await on.close();
  await proxy.stop();
});
