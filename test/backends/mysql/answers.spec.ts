import { randomUUID } from 'node:crypto';
import { createPool as createCallbackPool, type PoolOptions } from 'mysql2';
import type { Pool } from 'mysql2/promise';
import { getLock, leaseTable, type MysqlConnection } from 'nest-redis-lock/mysql';
import { startLockApp } from '../../support/lock-app.js';
import { openBackend } from '../../support/open-backend.js';
import { type MariadbServer, startMariadbServer } from '../../support/servers/mariadb-server.js';

let server: MariadbServer;
beforeAll(async () => {
  server = await startMariadbServer();
}, 60_000);
afterAll(() => server.stop());

const pools: Pool[] = [];
afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.end();
});

type TypeCast = Exclude<PoolOptions['typeCast'], boolean | undefined>;

const READINGS: readonly [string, PoolOptions][] = [
  ['all as text', { typeCast: (field) => field.string() }],
  ['all as bytes', { typeCast: false }],
  [
    'numbers as BigInt',
    {
      typeCast: ((_field, next) => {
        const read: unknown = next();
        return typeof read === 'number' ? BigInt(read) : read;
      }) as TypeCast,
    },
  ],
  [
    'numbers as booleans',
    { typeCast: (field, next) => (/LONG|TINY/.test(field.type) ? field.string() === '1' : next()) },
  ],
  ['big numbers as text', { supportBigNumbers: true, bigNumberStrings: true }],
  ['all as text, without eval', { typeCast: (field) => field.string(), disableEval: true }],
];

const CONNECTIONS: readonly [string, (options: PoolOptions) => MysqlConnection][] = [
  ['options', (options) => options],
  [
    'a pool',
    (options) => {
      const pool = createCallbackPool(options);
      pools.push(pool.promise());
      return pool;
    },
  ],
];

describe.each(READINGS)('connections that read %s', (_what, reading) => {
  it.each(
    CONNECTIONS.flatMap(([given, of]) =>
      ([leaseTable, getLock] as const).map((make) => [make.name, given, make, of] as const),
    ),
  )('%s() of %s grants a name to one process, tells its state, and renews it', async (_kind, _given, make, of) => {
    const start = () => startLockApp({ backend: make(of({ uri: server.url, ...reading })) });
    await using one = await start();
    await using two = await start();
    const name = `read:${randomUUID()}`;
    const lock = await one.locks.acquire(name, { ttl: 30_000, wait: 0 });
    expect((await two.locks.tryAcquire(name)) === null).toBe(true);
    for (const { locks } of [one, two]) {
      const state = await locks.inspect(name);
      expect(state).toMatchObject({ owner: lock.owner, ttl: expect.any(Number), fencingToken: expect.any(Number) });
      expect(state?.fencingToken).toBeGreaterThanOrEqual(lock.fencingToken);
    }
    await lock.extend(20_000);
    expect(lock.held).toBe(true);
    await lock.release();
    const next = await two.locks.acquire(name, { wait: 0 });
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    // Several of one turn share statements, whose answers are rows.
    const names = Array.from({ length: 4 }, (_, index) => `${name}:${index}`);
    for (const { locks } of [one, two]) {
      const several = await Promise.all(names.map((each) => locks.acquire(each, { wait: 0 })));
      await Promise.all(several.map((each) => each.release()));
    }
    await next.release();
    expect(one.logger.matching(/./)).toEqual([]);
  });
});

/** A pool whose driver answers each statement with `answer`, from the end of `honest` on. */
function poolThatAnswers(answer: unknown) {
  const pool = createCallbackPool(server.url);
  pools.push(pool.promise());
  const driver = { honest: true, pool };
  pool.on('connection', (connection) => {
    const { query } = connection;
    connection.query = function (this: unknown, ...given: unknown[]) {
      const answered = given.pop() as (error: unknown, answer: unknown) => void;
      const replaced = (error: unknown, real: unknown) => answered(error, driver.honest ? real : answer);
      return Reflect.apply(query, this, [...given, replaced]) as never;
    } as typeof query;
  });
  return driver;
}

it.each([[undefined], [null], [5], ['OK'], [{}], [[]], [[null]], [[{}]]])(
  'a driver that answers %j fails the call, and the next one works',
  async (answer) => {
    const driver = poolThatAnswers(answer);
    const process = randomUUID();
    const backend = openBackend(leaseTable(driver.pool), { process });
    const requestOf = (ticket: string) => ({ name: ticket, ticket, ttl: 60_000 });
    const [lease, other] = [requestOf(`${process}:1`), requestOf(`${process}:2`)];
    const calls = [
      () => backend.acquire(other),
      () => Promise.all(backend.renew([lease])),
      () => backend.inspect(lease),
    ];
    await backend.acquire(lease);
    for (const call of calls) {
      driver.honest = false;
      await expect(call()).rejects.toThrow(/the driver|the server answered|no number/);
      driver.honest = true;
      await call();
    }
    await backend.close();
  },
);

it('the label of an owner is read as it was written, whatever the characters of the connection', async () => {
  const process = randomUUID();
  const backend = openBackend(leaseTable({ uri: server.url, charset: 'LATIN1_SWEDISH_CI' }), { process });
  const ticket = `${process}:1`;
  await backend.acquire({ name: 'labelled', ticket, ttl: 60_000 });
  await backend.label?.('läden 🛒', 60_000);
  expect(await backend.inspect({ name: 'labelled' })).toMatchObject({ owner: ticket, label: 'läden 🛒' });
  await backend.close();
});
