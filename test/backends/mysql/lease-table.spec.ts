import { randomUUID } from 'node:crypto';
import { createPool, type Pool } from 'mysql2/promise';
import type { LockBackend } from 'nest-redis-lock';
import { leaseTable } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { startMariadbServer, type MariadbServer } from '../../support/servers/mariadb-server.js';

let server: MariadbServer;
let pool: Pool;
let backend: LockBackend;
beforeAll(async () => {
  server = await startMariadbServer();
  pool = createPool({ uri: server.url, connectionLimit: 5 });
  backend = leaseTable(server.url);
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
  const answer = await on.acquire({ names: [name], ticket, ttl, leastToken });
  return { ticket, answer, first: answer.status === 'granted' ? answer.tokens.first : 0 };
}

describe('one name', () => {
  it('has one owner until it is released', async () => {
    const name = newName();
    const { ticket } = await take(name);
    const refused = await take(name);
    expect(refused.answer).toMatchObject({ status: 'busy', owner: ticket, name });
    expect(await backend.release({ names: [name], ticket: refused.ticket })).toMatchObject({ status: 'taken' });
    expect(await backend.release({ names: [name], ticket })).toEqual({ status: 'released', resent: false });
    expect(await backend.release({ names: [name], ticket })).toMatchObject({ status: 'gone' });
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
    expect(await backend.renew([{ names: [name], ticket, ttl: 1_000 }])[0]).toEqual({ status: 'not-owner' });
    expect(await backend.mint({ name, ticket, leastToken: 0 })).toBeNull();
    expect(await backend.release({ names: [name], ticket })).toMatchObject({ status: 'gone' });
    expect((await take(name)).answer.status).toBe('granted');
  });

  it('is renewed for the requested time, never for less than it has', async () => {
    const names = [newName(), newName(), newName()] as const;
    const [long, short, foreign] = await Promise.all(
      names.map((name, index) => take(name, { ttl: [60_000, 1_000, 1_000][index] ?? 0 })),
    );
    const answers = await Promise.all(
      backend.renew([
        { names: [names[0]], ticket: long?.ticket ?? '', ttl: 1 },
        { names: [names[1]], ticket: short?.ticket ?? '', ttl: 30_000 },
        { names: [names[2]], ticket: newTicket(), ttl: 30_000 },
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
    expect(await backend.keep?.({ names: [name], ticket: other, rest: 1 })).toMatchObject({ status: 'taken' });
    expect(await backend.keep?.({ names: [name], ticket, rest: 90_000 })).toMatchObject({ status: 'released' });
    expect((await backend.inspect({ name }))?.ttl).toBeLessThanOrEqual(60_000);
    expect(await backend.keep?.({ names: [name], ticket, rest: 200 })).toMatchObject({ status: 'released' });
    expect((await take(name)).answer.status).toBe('busy');
    await eventually(async () => (await take(name)).answer.status === 'granted');
  });

  it('is taken from its owner by force', async () => {
    const name = newName();
    const { ticket } = await take(name);
    expect(await backend.forceRelease?.({ name })).toBe(ticket);
    expect(await backend.forceRelease?.({ name })).toBeNull();
    expect(await backend.renew([{ names: [name], ticket, ttl: 1_000 }])[0]).toEqual({ status: 'not-owner' });
  });

  it('tells the label of its owner', async () => {
    const name = newName();
    const { ticket } = await take(name);
    const process = ticket.slice(0, ticket.lastIndexOf(':'));
    await backend.label?.({ process, label: 'shop@host 🛒', ttl: 60_000 });
    expect(await backend.inspect({ name })).toMatchObject({ owner: ticket, label: 'shop@host 🛒', waiting: 0 });
    await backend.label?.({ process, label: '', ttl: 0 });
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
    await backend.release({ names: [name], ticket });
    const next = await take(name);
    expect(next.first).toBeGreaterThan((minted?.first ?? 0) + 127);
    expect((await take(newName(), { leastToken: 2 ** 52 })).first).toBeGreaterThanOrEqual(2 ** 52);
  });

  it('rise after the row was deleted', async () => {
    const name = newName();
    const before = await take(name);
    await backend.release({ names: [name], ticket: before.ticket });
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
  const request = { names: ['same'], ttl: 10_000 };
  const [none, shop, blog] = [newTicket(), newTicket(), newTicket()];
  expect((await backend.acquire({ ...request, ticket: none })).status).toBe('granted');
  expect((await backend.acquire({ ...request, ticket: shop, prefix: 'shop' })).status).toBe('granted');
  expect((await backend.acquire({ ...request, ticket: blog, prefix: 'blog' })).status).toBe('granted');
  expect((await backend.inspect({ name: 'same', prefix: 'shop' }))?.owner).toBe(shop);
});

describe('processes that wait', () => {
  it('are shown to the next owner and to one that renews, for a moment', async () => {
    const name = newName();
    const owner = await take(name);
    const [first, second] = [newTicket(), newTicket()];
    const waiting = async (ticket: string) => {
      const [renewed] = await Promise.all(backend.renew([{ names: [name], ticket, ttl: 1 }]));
      return renewed?.status === 'renewed' ? renewed.waiting : undefined;
    };
    await eventually(async () => {
      await Promise.all([take(name, { ticket: first }), take(name, { ticket: second })]);
      return (await waiting(owner.ticket)) === 2;
    });
    await backend.release({ names: [name], ticket: owner.ticket });
    expect((await take(name, { ticket: first })).answer).toMatchObject({ status: 'granted', waiting: 1 });
    await eventually(async () => (await waiting(first)) === 0);
  });

  it('do not count the new owner itself, nor later processes twice', async () => {
    const name = newName();
    const owner = await take(name);
    const waiter = newTicket();
    for (let tries = 0; tries < 3; tries += 1) await take(name, { ticket: waiter });
    expect(await backend.renew([{ names: [name], ticket: owner.ticket, ttl: 1 }])[0]).toMatchObject({ waiting: 1 });
    await backend.release({ names: [name], ticket: owner.ticket });
    expect((await take(name, { ticket: waiter })).answer).toMatchObject({ status: 'granted', waiting: undefined });
  });
});
