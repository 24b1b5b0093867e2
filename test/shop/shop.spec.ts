import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import pg from 'pg';
import { NestFactory } from '@nestjs/core';
import { LockService, type CacheStats } from 'nest-redis-lock';
import { DeductionService } from '../../sample-app/src/deduction/deduction.service.js';
import { OrderBook } from '../../sample-app/src/deduction/order-book.js';
import { FencedDeduction } from '../../sample-app/src/deduction/strategies/fenced.deduction.js';
import { StaleFencingTokenException } from '../../sample-app/src/deduction/deduction.exceptions.js';
import { LockDeduction } from '../../sample-app/src/deduction/strategies/lock.deduction.js';
import { STRATEGIES } from '../../sample-app/src/deduction/strategy.js';
import { madeProgram } from '../support/child.js';
import { startPostgresServer, type PostgresServer } from '../support/servers/postgres-server.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { ServerProcess } from '../support/servers/server-process.js';
import type { Settings } from '../../sample-app/src/settings.js';
import { ShopModule } from '../../sample-app/src/shop.module.js';
import { eventually } from '../support/eventually.js';

const PROGRAM = madeProgram('dist-sample/shop/main.js');
const REPORT_INTERVAL = 500;

let redis: RedisServer;
let postgres: PostgresServer;
let database: pg.Pool;
let shops: { url: string; process: ServerProcess }[];

async function startShop(): Promise<{ url: string; process: ServerProcess }> {
  const env = { PORT: '0', REDIS_URL: redis.url, DATABASE_URL: postgres.url, REPORT_INTERVAL: String(REPORT_INTERVAL) };
  const portOf = (server: ServerProcess) => /listening on \S+:(\d+)/.exec(server.log)?.[1];
  const server = await ServerProcess.start({
    command: process.execPath,
    args: [PROGRAM],
    env,
    ready: async (started) => {
      if (!portOf(started)) throw new Error('not yet');
    },
  });
  return { url: `http://127.0.0.1:${portOf(server)}`, process: server };
}

function settings(): Settings {
  return {
    port: 0,
    redisUrl: redis.url,
    databaseUrl: postgres.url,
    lockPrefix: undefined,
    reportInterval: 60_000,
  };
}

async function post(path: string, body: unknown, shop = shops[0]): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`${shop?.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}

async function get<T = unknown>(path: string, shop = shops[0]): Promise<T> {
  const response = await fetch(`${shop?.url}${path}`);
  expect(response.status).toBe(200);
  return (await response.json()) as T;
}

/** Loaders called so far, by all processes. */
async function loads(): Promise<number> {
  const stats = await Promise.all(shops.map((shop) => get<CacheStats>('/cache/stats', shop)));
  return stats.reduce((sum, each) => sum + each.loads, 0);
}

/** Behind the back of the shop: only a read of the database sees it. */
async function rename(sku: string, name: string): Promise<void> {
  await database.query('UPDATE products SET name = $2 WHERE sku = $1', [sku, name]);
}

async function newProduct(stock: number): Promise<string> {
  const sku = `sku-${randomUUID()}`;
  expect((await post('/products', { sku, stock })).status).toBe(201);
  return sku;
}

async function sold(sku: string): Promise<{ stock: number; orders: number }> {
  const { rows } = await database.query<{ stock: number; orders: number }>(
    'SELECT stock, (SELECT count(*)::int FROM orders o WHERE o.sku = p.sku) AS orders FROM products p WHERE sku = $1',
    [sku],
  );
  return rows[0] as { stock: number; orders: number };
}

beforeAll(async () => {
  [redis, postgres] = await Promise.all([startRedisServer(), startPostgresServer()]);
  database = new pg.Pool({ connectionString: postgres.url });
  shops = await Promise.all([startShop(), startShop(), startShop()]);
}, 240_000);
afterAll(async () => {
  await Promise.all(shops.map((shop) => shop.process.stop()));
  await database.end();
  await Promise.all([redis.stop(), postgres.stop()]);
});

it('serves its products, its documentation and its health', async () => {
  const sku = await newProduct(5);
  expect((await post('/products', { sku, stock: 1 })).status).toBe(409);
  expect((await post(`/products/${sku}/restock`, { quantity: 3 })).body).toEqual({ sku, name: sku, stock: 8 });
  expect(await (await fetch(`${shops[1]?.url}/products/${sku}`)).json()).toMatchObject({ stock: 8 });
  expect((await fetch(`${shops[1]?.url}/products/absent`)).status).toBe(404);
  expect((await post('/products/absent/restock', { quantity: 3 })).status).toBe(404);
  expect((await fetch(`${shops[0]?.url}/health`)).status).toBe(200);
  expect((await fetch(`${shops[0]?.url}/docs`)).status).toBe(200);
  const api = (await (await fetch(`${shops[0]?.url}/docs-json`)).json()) as { paths: object };
  expect(Object.keys(api.paths)).toContain('/products/{sku}/deduct');
});

it.each([
  [{ quantity: 0, orderId: 'x' }],
  [{ quantity: 1.5, orderId: 'x' }],
  [{ quantity: 1 }],
  [{ quantity: 1, orderId: '' }],
  [{ quantity: 1, orderId: 'x', discount: 100 }],
])('refuses the order %j', async (order) => {
  const sku = await newProduct(5);
  expect((await post(`/products/${sku}/deduct`, order)).status).toBe(400);
  expect(await sold(sku)).toEqual({ stock: 5, orders: 0 });
});

it('refuses a strategy that it does not know', async () => {
  const sku = await newProduct(5);
  expect((await post(`/products/${sku}/deduct?strategy=hope`, { quantity: 1, orderId: randomUUID() })).status).toBe(
    400,
  );
});

describe.each(STRATEGIES)('strategy %s', (strategy) => {
  const deduct = (sku: string, order: object, shop = shops[0]) =>
    post(`/products/${sku}/deduct?strategy=${strategy}`, order, shop);

  it('takes pieces out, and says when there are too few or no such product', async () => {
    const sku = await newProduct(3);
    const orderId = randomUUID();
    const accepted = await deduct(sku, { quantity: 2, orderId });
    expect(accepted).toEqual({ status: 201, body: { orderId, sku, quantity: 2, strategy, stock: 1 } });
    const refused = await deduct(sku, { quantity: 2, orderId: randomUUID() });
    expect(refused).toMatchObject({ status: 409, body: { code: 'OUT_OF_STOCK' } });
    expect((await deduct('absent', { quantity: 2, orderId: randomUUID() })).status).toBe(404);
    expect(await sold(sku)).toEqual({ stock: 1, orders: 1 });
  });

  it('shows what is left to the next reader, in any process', async () => {
    const sku = await newProduct(10);
    for (let left = 10; left > 0; left--) {
      for (const shop of shops) expect(await get(`/products/${sku}`, shop)).toMatchObject({ stock: left });
      const deducted = await deduct(sku, { quantity: 1, orderId: randomUUID() }, shops[left % 3]);
      expect(deducted).toMatchObject({ status: 201, body: { stock: left - 1 } });
    }
    expect(await get(`/products/${sku}`, shops[1])).toMatchObject({ stock: 0 });
  });

  it('accepts an order once, and answers the same again', async () => {
    const sku = await newProduct(1);
    const order = { quantity: 1, orderId: randomUUID() };
    const atOnce = await Promise.all(Array.from({ length: 9 }, (_, index) => deduct(sku, order, shops[index % 3])));
    const later = await deduct(sku, order);
    for (const answer of atOnce) expect(answer).toEqual(later);
    expect(later.status).toBe(201);
    expect(await sold(sku)).toEqual({ stock: 0, orders: 1 });
    expect((await deduct(sku, { ...order, quantity: 2 })).status).toBe(422);
  });

  if (strategy === 'none') return;

  it('never sells more than there is, over three processes', async () => {
    const sku = await newProduct(20);
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, i) => deduct(sku, { quantity: 1, orderId: randomUUID() }, shops[i % 3])),
    );
    const accepted = answers.filter(({ status }) => status === 201).length;
    expect(accepted).toBe(20);
    expect(await sold(sku)).toEqual({ stock: 0, orders: 20 });
  });
});

describe('the cache of products', () => {
  it('answers every process after the first read, unless the request bypasses it', async () => {
    const sku = await newProduct(5);
    const before = await loads();
    const read = { sku, name: sku, stock: 5 };
    expect(await get(`/products/${sku}`)).toEqual(read);
    await rename(sku, 'Teapot');
    for (const shop of shops) expect(await get(`/products/${sku}`, shop)).toEqual(read);
    expect((await loads()) - before).toBe(1);
    expect(await get(`/products/${sku}?cache=off`)).toEqual({ ...read, name: 'Teapot' });
    expect((await fetch(`${shops[0]?.url}/products/${sku}?cache=maybe`)).status).toBe(400);
  });

  it('shows a restock to the next reader, in any process', async () => {
    const sku = await newProduct(0);
    for (let stock = 0; stock < 10; stock++) {
      for (const shop of shops) expect(await get(`/products/${sku}`, shop)).toMatchObject({ stock });
      await post(`/products/${sku}/restock`, { quantity: 1 }, shops[stock % 3]);
    }
    expect(await get(`/products/${sku}`, shops[1])).toMatchObject({ stock: 10 });
  });

  it('remembers that there is no such product, until there is', async () => {
    const sku = `sku-${randomUUID()}`;
    const before = await loads();
    for (const shop of shops) expect((await fetch(`${shop.url}/products/${sku}`)).status).toBe(404);
    expect((await loads()) - before).toBe(1);
    expect((await post('/products', { sku, stock: 1 })).status).toBe(201);
    expect(await get(`/products/${sku}`, shops[1])).toMatchObject({ stock: 1 });
  });

  it('keeps what is cached where an order was refused', async () => {
    const sku = await newProduct(1);
    await get(`/products/${sku}`);
    expect((await post(`/products/${sku}/deduct`, { quantity: 2, orderId: randomUUID() })).status).toBe(409);
    await rename(sku, 'Teapot');
    expect(await get(`/products/${sku}`)).toMatchObject({ name: sku });
  });

  it('shows what an order has done whose answer was lost', async () => {
    const app = await NestFactory.createApplicationContext(ShopModule.with(settings()), { logger: false });
    const [lock, orders] = [app.get(LockDeduction), app.get(OrderBook)];
    const deduct = lock.deduct.bind(lock);
    lock.deduct = async (...args) => {
      await deduct(...args);
      orders.find = () => Promise.reject(new Error('The connection broke'));
      throw new Error('The connection broke');
    };
    const sku = await newProduct(5);
    expect(await get(`/products/${sku}`)).toMatchObject({ stock: 5 });
    const order = { quantity: 1, orderId: randomUUID() };
    await expect(app.get(DeductionService).deduct('lock', sku, order)).rejects.toThrow('The connection broke');
    expect(await get(`/products/${sku}`)).toMatchObject({ stock: 4 });
    await app.close();
  });

  it('shows an order to who sends it again, though the process that accepted it died before it evicted', async () => {
    const sku = await newProduct(5);
    const order = { quantity: 1, orderId: randomUUID() };
    await get(`/products/${sku}`);
    await database.query(
      `WITH taken AS (UPDATE products SET stock = 4 WHERE sku = $1)
       INSERT INTO orders (order_id, sku, quantity, strategy, stock) VALUES ($2, $1, 1, 'lock', 4)`,
      [sku, order.orderId],
    );
    expect(await post(`/products/${sku}/deduct`, order, shops[1])).toMatchObject({ status: 201, body: { stock: 4 } });
    expect(await get(`/products/${sku}`, shops[2])).toMatchObject({ stock: 4 });
  });
});

it('reports its stock once a period, however many processes have a timer', async () => {
  const count = async () => {
    const { rows } = await database.query<{ period: string }>('SELECT period FROM stock_reports ORDER BY period');
    return rows.map(({ period }) => Number(period));
  };
  await eventually(async () => (await count()).length >= 4, { within: 10_000 });
  const periods = await count();
  expect(new Set(periods).size).toBe(periods.length);
  // A machine that stands still for a period leaves it out.
  const passed = (periods.at(-1) as number) - (periods[0] as number) + 1;
  expect(periods.length).toBeGreaterThan(passed / 2);
});

it('refuses the write of a holder whose lock has passed on, also between the read and the write of the next', async () => {
  const app = await NestFactory.createApplicationContext(ShopModule.with(settings()), { logger: false });
  const [fenced, locks] = [app.get(FencedDeduction), app.get(LockService)];
  const sku = await newProduct(10);
  const order = () => ({ quantity: 1, orderId: randomUUID() });

  const stale = await locks.acquire(`stock:${sku}`, { ttl: 100, renew: false });
  expect(await fenced.read(sku, stale.fencingToken)).toBe(10);
  const next = await locks.acquire(`stock:${sku}`);
  const stock = await fenced.read(sku, next.fencingToken);
  // The stale holder wakes up after the next one has read and before it writes.
  await expect(fenced.write(sku, order(), 9, stale.fencingToken)).rejects.toBeInstanceOf(StaleFencingTokenException);
  await expect(fenced.read(sku, stale.fencingToken)).rejects.toBeInstanceOf(StaleFencingTokenException);
  await fenced.write(sku, order(), stock - 1, next.fencingToken);
  expect(await sold(sku)).toEqual({ stock: 9, orders: 1 });

  await next.release();
  await expect(stale.release()).rejects.toMatchObject({ code: 'LOCK_LOST' });
  await app.close();
});

it('finishes the orders in flight at SIGTERM, also those that wait for the lock', async () => {
  const shop = await startShop();
  const sku = await newProduct(1_000);
  const key = `lock:{stock:${sku}}`;
  const client = new Redis(redis.url);
  await client.set(key, 'somebody', 'PX', 60_000);
  const inside = Array.from({ length: 40 }, async () => {
    const answer = await post(`/products/${sku}/deduct`, { quantity: 1, orderId: randomUUID() }, shop);
    return answer.status;
  });
  await eventually(async () => (await client.exists(`${key}:queue`)) === 1);
  // What was asked later is answered: the orders have arrived, and wait in the queue of the process.
  for (let later = 0; later < 5; later++) await fetch(`${shop.url}/health`);
  const status = shop.process.stop();
  await eventually(() =>
    fetch(`${shop.url}/health`).then(
      () => false,
      () => true,
    ),
  );
  await client.del(key);
  expect(await Promise.all(inside)).toEqual(Array.from({ length: 40 }, () => 201));
  expect(await status).toBe(0);
  expect(await sold(sku)).toEqual({ stock: 960, orders: 40 });
  client.disconnect();
});
