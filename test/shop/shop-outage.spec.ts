import { randomUUID } from 'node:crypto';
import pg from 'pg';
import type { Shop } from '../../sample-app/demo/shop.js';
import { eventually } from '../support/eventually.js';
import { get, post, startShop, startShopServers, type Answer, type ShopServers } from '../support/shop.js';

let servers: ShopServers;
let shop: Shop | undefined;

beforeAll(async () => {
  servers = await startShopServers();
  shop = await startShop(servers);
}, 240_000);
afterAll(async () => {
  await shop?.process.stop();
  await servers.stop();
});

const UNAVAILABLE = { statusCode: 503, code: 'DATABASE_UNAVAILABLE', message: expect.stringContaining('Try again') };

async function newProduct(): Promise<string> {
  const sku = `sku-${randomUUID()}`;
  expect((await post(shop as Shop, '/products', { sku, stock: 10 })).status).toBe(201);
  return sku;
}

async function backends(): Promise<number[]> {
  const client = new pg.Client(servers.postgres.url);
  await client.connect();
  const { rows } = await client.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
  );
  await client.end();
  return rows.map(({ pid }) => pid);
}

/** Stops the server and its connections where they stand. */
async function freezeDatabase(): Promise<() => void> {
  const pids = [servers.postgres.process.pid, ...(await backends())];
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  return () => pids.forEach((pid) => process.kill(pid, 'SIGCONT'));
}

it('answers 503 to everything that needs a database which stands still, and sells again when it goes on', async () => {
  const sku = await newProduct();
  const thaw = await freezeDatabase();
  try {
    const asked: Promise<Answer>[] = [
      get(shop as Shop, `/products/${sku}?cache=off`),
      ...['none', 'lock', 'fenced', 'pessimistic', 'optimistic', 'atomic'].map((strategy) =>
        post(shop as Shop, `/products/${sku}/deduct?strategy=${strategy}`, { quantity: 1, orderId: randomUUID() }),
      ),
    ];
    expect(await get(shop as Shop, '/health')).toMatchObject({
      status: 503,
      body: { statusCode: 503, details: { database: { status: 'down' }, locks: { status: 'up' } } },
    });
    for (const answer of await Promise.all(asked)) expect(answer).toEqual({ status: 503, body: UNAVAILABLE });
  } finally {
    thaw();
  }
  await eventually(async () => (await get(shop as Shop, '/health')).status === 200, { within: 15_000 });
  const order = { quantity: 1, orderId: randomUUID() };
  expect(await post(shop as Shop, `/products/${sku}/deduct`, order)).toMatchObject({ status: 201, body: { stock: 9 } });
}, 240_000);

it('lives on when the database ends its connections in the middle of transactions', async () => {
  const sku = await newProduct();
  const holder = new pg.Client(servers.postgres.url);
  await holder.connect();
  await holder.query('BEGIN');
  await holder.query('SELECT FROM products WHERE sku = $1 FOR UPDATE', [sku]);
  const order = { quantity: 1, orderId: randomUUID() };
  const blocked = post(shop as Shop, `/products/${sku}/deduct?strategy=pessimistic`, order);
  const control = new pg.Client(servers.postgres.url);
  await control.connect();
  await eventually(
    async () =>
      (
        await control.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE'`,
        )
      ).rowCount,
  );
  expect(await blocked).toEqual({ status: 503, body: UNAVAILABLE });
  await holder.query('ROLLBACK');
  await Promise.all([holder.end(), control.end()]);
  expect(await post(shop as Shop, `/products/${sku}/deduct`, order)).toMatchObject({ status: 201, body: { stock: 9 } });
});
