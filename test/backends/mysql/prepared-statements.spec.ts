import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { createPool, type Pool, type PoolOptions } from 'mysql2/promise';
import type { LockBackend } from 'nest-redis-lock';
import { leaseTable } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { startMariadbServer, type MariadbServer } from '../../support/servers/mariadb-server.js';

let server: MariadbServer;
let admin: Pool;
beforeAll(async () => {
  server = await startMariadbServer();
  admin = createPool({ uri: server.url, connectionLimit: 2 });
}, 60_000);
afterAll(async () => {
  await admin.end();
  await server.stop();
});

const newTicket = () => `${randomUUID()}:1`;

async function status(name: string): Promise<number> {
  const [rows] = await admin.query('SHOW GLOBAL STATUS LIKE ?', [name]);
  return Number((rows as { Value: string }[])[0]?.Value);
}

/** Takes a name, meets itself as another ticket, and releases it; answers the first token. */
async function cycle(backend: LockBackend, name: string = randomUUID(), ticket = newTicket()): Promise<number> {
  const taken = await backend.acquire({ names: [name], ticket, ttl: 60_000 });
  if (taken.status !== 'granted') throw new Error(`"${name}" is ${taken.status}`);
  const other = await backend.acquire({ names: [name], ticket: newTicket(), ttl: 60_000 });
  expect(other).toMatchObject({ status: 'busy', owner: ticket });
  expect(other.status === 'busy' && other.remaining).toBeGreaterThan(55_000);
  expect(await backend.release({ names: [name], ticket })).toEqual({ status: 'released', resent: false });
  expect(await backend.release({ names: [name], ticket })).toMatchObject({ status: 'gone' });
  return taken.tokens.first;
}

async function cyclesOfOneName(backend: LockBackend, count = 3): Promise<void> {
  const name = randomUUID();
  let last = 0;
  for (let index = 0; index < count; index += 1) {
    const token = await cycle(backend, name);
    expect(Number.isSafeInteger(token) && token > last).toBe(true);
    last = token;
  }
}

const COMMAND = 4;
const PREPARE = 0x16;
const EXECUTE = 0x17;
const NO_COMMAND = 0x50;

/** A proxy that spoils the commands of prepared statements. */
async function spoilingProxy(spoil: (packet: Buffer) => boolean) {
  let spoiled = 0;
  const proxy = createServer((client) => {
    const upstream = connect(server.port, '127.0.0.1');
    for (const socket of [client, upstream]) socket.on('error', () => {});
    client.on('data', (packet: Buffer) => {
      if (spoil(packet)) spoiled += 1;
      upstream.write(packet);
    });
    client.on('close', () => upstream.destroy());
    upstream.pipe(client);
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const { port } = proxy.address() as AddressInfo;
  return { url: `mysql://root@127.0.0.1:${port}/test`, spoiled: () => spoiled, stop: () => proxy.close() };
}

it('the server prepares two statements for each connection, however many names and leases there are', async () => {
  const backend = leaseTable({ uri: server.url, connectionLimit: 1 });
  await backend.start?.({ report: () => {} } as never);
  const [prepared, executed] = [await status('Com_stmt_prepare'), await status('Com_stmt_execute')];
  for (let index = 0; index < 30; index += 1) {
    const ticket = newTicket();
    await backend.acquire({ names: [`n${index}`], ticket, ttl: 10_000 + index });
    await backend.release({ names: [`n${index}`], ticket });
  }
  expect((await status('Com_stmt_prepare')) - prepared).toBe(0);
  expect((await status('Com_stmt_execute')) - executed).toBe(60);
  expect(await status('Prepared_stmt_count')).toBe(2);
  await backend.close();
  await eventually(async () => (await status('Prepared_stmt_count')) === 0);
});

it('statements on a pool of the application stay text', async () => {
  const pool = createPool({ uri: server.url, connectionLimit: 1 });
  const prepared = await status('Com_stmt_prepare');
  await cyclesOfOneName(leaseTable(pool));
  expect(await status('Com_stmt_prepare')).toBe(prepared);
  await pool.end();
});

it('locks are taken as before where the server has no room for a prepared statement', async () => {
  const [[before]] = (await admin.query('SELECT @@max_prepared_stmt_count AS most')) as unknown as [[{ most: number }]];
  await admin.query('SET GLOBAL max_prepared_stmt_count = 0');
  try {
    const backend = leaseTable(server.url);
    await cyclesOfOneName(backend);
    await backend.close();
  } finally {
    await admin.query(`SET GLOBAL max_prepared_stmt_count = ${before.most}`);
  }
});

describe('behind a proxy that', () => {
  it.each([
    [
      'knows no prepared statements',
      (packet: Buffer) => {
        const prepares = packet[COMMAND] === PREPARE;
        if (prepares) packet[COMMAND] = NO_COMMAND;
        return prepares;
      },
    ],
    [
      'runs a statement on a session that did not prepare it',
      (packet: Buffer) => {
        const executes = packet[COMMAND] === EXECUTE;
        if (executes) packet.writeUInt32LE(9_999, COMMAND + 1);
        return executes;
      },
    ],
  ])('%s, statements go as text after the first refusal', async (_what, spoil) => {
    const proxy = await spoilingProxy(spoil);
    const backend = leaseTable({ uri: proxy.url, connectionLimit: 1 });
    await cyclesOfOneName(backend, 10);
    expect(proxy.spoiled()).toBe(1);
    // The statement that the server did not know by its number is not kept.
    expect(await status('Prepared_stmt_count')).toBe(0);
    await backend.close();
    proxy.stop();
  });
});

it('a connection that the server has ended is followed by one that prepares anew', async () => {
  const backend = leaseTable({ uri: server.url, connectionLimit: 1 });
  const name = randomUUID();
  const first = await cycle(backend, name);
  await admin.query('FLUSH TABLES');
  const second = await cycle(backend, name);
  const prepared = await status('Com_stmt_prepare');
  const [users] = await admin.query(
    "SELECT id FROM information_schema.processlist WHERE command = 'Sleep' AND id <> CONNECTION_ID()",
  );
  for (const { id } of users as { id: number }[]) await admin.query(`KILL ${id}`).catch(() => {});
  const third = await eventually(() => cycle(backend, name).catch(() => undefined));
  expect((await status('Com_stmt_prepare')) - prepared).toBe(2);
  expect([first, second, third]).toEqual([first, second, third].toSorted((a, b) => a - b));
  await backend.close();
});

it('the table may be dropped and made again while its statements are prepared', async () => {
  const backend = leaseTable({ uri: server.url, connectionLimit: 1 }, { table: 'dropped_locks' });
  await cyclesOfOneName(backend);
  await admin.query('DROP TABLE dropped_locks');
  await cyclesOfOneName(backend);
  await backend.close();
});

describe('prepared statements mean the same on connections that', () => {
  it.each<[string, PoolOptions]>([
    ['count changed rows instead of found ones', { flags: ['-FOUND_ROWS'] }],
    ['return big numbers as text', { supportBigNumbers: true, bigNumberStrings: true, dateStrings: true }],
    ['return rows as arrays', { rowsAsArray: true }],
    ['cast nothing', { typeCast: false }],
    ['name placeholders', { namedPlaceholders: true }],
    ['speak latin1', { charset: 'LATIN1_SWEDISH_CI' }],
    ['return decimals as numbers', { decimalNumbers: true }],
  ])('%s', async (_what, options) => {
    const backend = leaseTable({ uri: server.url, connectionLimit: 1, ...options });
    await cyclesOfOneName(backend);
    await backend.close();
  });
});

it('names and tickets of any characters are kept as they are', async () => {
  const backend = leaseTable({ uri: server.url, charset: 'LATIN1_SWEDISH_CI' }, { table: 'shown_locks' });
  const names = [`Lagerplätze 📦 ${'ж'.repeat(300)}`, `it's "?" \\ :id`, ''];
  for (const name of names) {
    await cycle(backend, name);
    await cycle(backend, name, `prozeß 'ü' ${randomUUID()}:1`);
  }
  const [rows] = await admin.query('SELECT name FROM shown_locks');
  const shown = (rows as { name: string }[]).map((row) => row.name);
  expect(shown.toSorted()).toEqual(names.map((name) => name.slice(0, 255)).toSorted());
  await backend.close();
});
