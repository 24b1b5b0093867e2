import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Shop } from '../../sample-app/demo/shop.js';
import { eventually } from '../support/eventually.js';
import { post, startShop, startShopServers, type ShopServers } from '../support/shop.js';

const LOCK_TTL = 1_500;
const PRODUCTS = 30;
const STOCK = 10_000;

let servers: ShopServers;
let database: pg.Pool;
let shops: Shop[] = [];

beforeAll(async () => {
  servers = await startShopServers();
  database = new pg.Pool({ connectionString: servers.postgres.url });
  const env = { LOCK_TTL: String(LOCK_TTL) };
  shops = await Promise.all([startShop(servers, env), startShop(servers, env)]);
}, 240_000);
afterAll(async () => {
  await Promise.all(shops.map((shop) => shop.process.stop()));
  await database.end();
  await servers.stop();
});

/** Products of which the database has not deducted what it has sold. */
async function unsoundProducts(skus: readonly string[]): Promise<unknown[]> {
  const { rows } = await database.query<{ sku: string; stock: number; sold: number }>(
    `SELECT sku, stock, (SELECT coalesce(sum(quantity), 0)::int FROM orders o WHERE o.sku = p.sku) AS sold
     FROM products p WHERE sku = ANY ($1)`,
    [skus],
  );
  expect(rows).toHaveLength(skus.length);
  expect(rows.every(({ sold }) => sold > 0)).toBe(true);
  return rows.filter(({ stock, sold }) => stock !== STOCK - sold);
}

/** How many statements wait for a row that somebody else has locked. */
async function waitingStatements(): Promise<number> {
  const { rowCount } = await database.query("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
  return rowCount ?? 0;
}

/** Keeps the row of the product locked until the answer is called. */
async function lockRow(sku: string): Promise<() => Promise<void>> {
  const connection = await database.connect();
  await connection.query('BEGIN');
  await connection.query('SELECT FROM products WHERE sku = $1 FOR UPDATE', [sku]);
  return async () => {
    await connection.query('ROLLBACK');
    connection.release();
  };
}

const order = () => ({ quantity: 1, orderId: randomUUID() });

it.each([
  ['lock', 'its write', 'LOCK_LOST'],
  ['fenced', 'its read', 'STALE_FENCING_TOKEN'],
])('%s refuses the sale of a process that is frozen at %s until another holds the lock', async (strategy, _, code) => {
  const [frozen, other] = shops as [Shop, Shop];
  const sku = `sku-${randomUUID()}`;
  await post(frozen, '/products', { sku, stock: STOCK });
  const path = `/products/${sku}/deduct?strategy=${strategy}`;
  const unlockRow = await lockRow(sku);
  const late = post(frozen, path, order());
  await eventually(async () => (await waitingStatements()) === 1);
  frozen.process.pause();
  try {
    const next = post(other, path, order());
    // It has read, or reads, the stock: it holds the lock, as the lease of the frozen process has ended.
    await eventually(async () => (await waitingStatements()) === 2);
    await unlockRow();
    // The row refuses a token once it has seen the next one; the lock refuses before that, too.
    if (strategy === 'fenced') expect((await next).status).toBe(201);
    frozen.process.resume();
    expect((await late).body).toMatchObject({ code });
    expect((await next).status).toBe(201);
  } finally {
    frozen.process.resume();
  }
  expect(await unsoundProducts([sku])).toEqual([]);
});

it.each(['lock', 'fenced'])(
  '%s deducts what it sells, also where a process of the shop is frozen for longer than its lease',
  async (strategy) => {
    const skus = Array.from({ length: PRODUCTS }, () => `sku-${randomUUID()}`);
    for (const sku of skus) await post(shops[0] as Shop, '/products', { sku, stock: STOCK });
    const closing = new AbortController();
    let sold = 0;
    const customer = async (sku: string, shop: Shop) => {
      while (!closing.signal.aborted) {
        // A connection that was open during a standstill may end without an answer.
        const answer = await post(shop, `/products/${sku}/deduct?strategy=${strategy}`, order()).catch(() => undefined);
        if (answer?.status === 201) sold += 1;
      }
    };
    const customers = Promise.all(skus.flatMap((sku) => shops.map((shop) => customer(sku, shop))));
    try {
      await eventually(() => sold > PRODUCTS);
      const [frozen] = shops as [Shop];
      for (let times = 0; times < 4; times++) {
        frozen.process.pause();
        await sleep(LOCK_TTL + 300);
        frozen.process.resume();
        const before = sold;
        await eventually(() => sold > before + PRODUCTS);
      }
    } finally {
      shops[0]?.process.resume();
      closing.abort();
      await customers;
    }
    expect(await unsoundProducts(skus)).toEqual([]);
  },
  180_000,
);
