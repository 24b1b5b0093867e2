import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Shop } from '../../sample-app/src/demo/shop-process.js';
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
}, 60_000);
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

it.each(['lock', 'fenced'])(
  '%s deducts what it sells, also where a process of the shop stands still for longer than its lease',
  async (strategy) => {
    const skus = Array.from({ length: PRODUCTS }, () => `sku-${randomUUID()}`);
    for (const sku of skus) await post(shops[0] as Shop, '/products', { sku, stock: STOCK });
    const closing = new AbortController();
    const codes = new Map<unknown, number>();
    const customer = async (sku: string, shop: Shop) => {
      while (!closing.signal.aborted) {
        const order = { quantity: 1, orderId: randomUUID() };
        // A connection that was open during a standstill may end without an answer.
        const answer = await post(shop, `/products/${sku}/deduct?strategy=${strategy}`, order).catch(() => undefined);
        if (!answer) continue;
        const code = answer.status === 201 ? 'sold' : answer.body['code'];
        codes.set(code, (codes.get(code) ?? 0) + 1);
      }
    };
    const customers = Promise.all(skus.flatMap((sku) => shops.map((shop) => customer(sku, shop))));
    const refused = () => codes.has('LOCK_LOST') || codes.has('STALE_FENCING_TOKEN');
    const sold = () => codes.get('sold') ?? 0;
    try {
      await eventually(() => sold() > PRODUCTS, { within: 20_000 });
      const [frozen] = shops as [Shop];
      // Not every standstill hits a process between its read and its write, nor lasts until the next holder has sold.
      for (let times = 0; times < 6 || (times < 20 && !refused()); times++) {
        frozen.process.pause();
        await sleep(LOCK_TTL + 300);
        frozen.process.resume();
        const before = sold();
        await eventually(() => sold() > before + PRODUCTS, { within: 10_000 });
      }
    } finally {
      shops[0]?.process.resume();
      closing.abort();
      await customers;
    }
    expect(await unsoundProducts(skus)).toEqual([]);
    expect(refused()).toBe(true);
  },
  180_000,
);
