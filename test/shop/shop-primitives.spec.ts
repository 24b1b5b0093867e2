import { randomUUID } from 'node:crypto';
import { NestFactory } from '@nestjs/core';
import { LeaderElection } from 'nest-redis-lock';
import pg from 'pg';
import { PaymentProvider } from '../../sample-app/demo/payment-provider.js';
import type { Shop } from '../../sample-app/demo/shop.js';
import { RestockService, StaleTermException } from '../../sample-app/src/restock/restock.service.js';
import { ShopModule } from '../../sample-app/src/shop.module.js';
import { eventually } from '../support/eventually.js';
import { get, post, startShop, startShopServers, type ShopServers } from '../support/shop.js';

let servers: ShopServers;
let provider: PaymentProvider;
let database: pg.Pool;
let shops: Shop[] = [];

beforeAll(async () => {
  servers = await startShopServers();
  provider = await PaymentProvider.start();
  database = new pg.Pool({ connectionString: servers.postgres.url });
  const env = { PAYMENT_URL: provider.url, RESTOCK_INTERVAL: '50' };
  shops = await Promise.all([startShop(servers, env), startShop(servers, env)]);
}, 240_000);
afterAll(async () => {
  await Promise.all(shops.map((shop) => shop.process.stop()));
  await database.end();
  await provider[Symbol.asyncDispose]();
  await servers.stop();
});

async function newProduct(stock: number): Promise<string> {
  const sku = `sku-${randomUUID()}`;
  expect((await post(shops[0] as Shop, '/products', { sku, stock })).status).toBe(201);
  return sku;
}

/** An order of one piece, by a customer who never ordered before. */
function orderOf(sku: string) {
  return { orderId: randomUUID(), sku, quantity: 1, customer: randomUUID() };
}

async function count(table: string, sku: string): Promise<number> {
  const { rows } = await database.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${table} WHERE sku = $1`,
    [sku],
  );
  return rows[0]?.count ?? 0;
}

it('places an order once, and repeats its answer in every process', async () => {
  const [one, other] = shops as [Shop, Shop];
  const sku = await newProduct(5);
  const order = orderOf(sku);
  const first = await post(one, '/orders', order);
  const { orderId } = order;
  expect(first).toEqual({
    status: 201,
    body: { orderId, sku, quantity: 1, stock: 4, payment: expect.stringMatching(/^payment-\d+$/) },
  });
  expect(await post(other, '/orders', order)).toEqual(first);
  expect(await count('order_runs', sku)).toBe(1);
  expect(provider.callsFor(orderId)).toBe(1);
});

it('refuses another order with the same number, and an order without a customer', async () => {
  const [one, other] = shops as [Shop, Shop];
  const sku = await newProduct(5);
  const order = orderOf(sku);
  await post(one, '/orders', order);
  expect(await post(other, '/orders', { ...order, quantity: 2 })).toMatchObject({
    status: 422,
    body: { statusCode: 422, code: 'IDEMPOTENCY_CONFLICT' },
  });
  expect((await post(one, '/orders', { ...orderOf(sku), customer: undefined })).status).toBe(400);
  expect(await get(one, `/products/${sku}`)).toMatchObject({ body: { stock: 4 } });
});

it('places an order that was out of stock when it was sent before', async () => {
  const [one, other] = shops as [Shop, Shop];
  const sku = await newProduct(0);
  const order = orderOf(sku);
  expect(await post(one, '/orders', order)).toMatchObject({ status: 409, body: { code: 'OUT_OF_STOCK' } });
  await post(one, `/products/${sku}/restock`, { quantity: 1 });
  expect(await post(other, '/orders', order)).toMatchObject({ status: 201, body: { stock: 0 } });
});

it('sells an order once whose process was killed while it was paid', async () => {
  const [victim, other] = shops as [Shop, Shop];
  const sku = await newProduct(5);
  const order = orderOf(sku);
  const paying = provider.hold(order.orderId);
  const unanswered = post(victim, '/orders', order);
  unanswered.catch(() => {});
  await paying;
  expect(await count('orders', sku)).toBe(1);
  await victim.process.kill();
  await expect(unanswered).rejects.toThrow();
  expect(await post(other, '/orders', order)).toMatchObject({ status: 201, body: { stock: 4 } });
  expect(await count('orders', sku)).toBe(1);
  expect(await count('order_runs', sku)).toBe(2);
  expect(provider.callsFor(order.orderId)).toBe(2);
  expect(provider.chargesFor(order.orderId)).toBe(1);
  shops[0] = await startShop(servers, { PAYMENT_URL: provider.url, RESTOCK_INTERVAL: '50' });
}, 60_000);

it('tells a customer who orders too often when to come back', async () => {
  const customer = randomUUID();
  const send = (index: number) =>
    fetch(`${shops[index % 2]?.url}/orders`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ customer }),
    });
  const answers = await Promise.all(Array.from({ length: 60 }, (_, index) => send(index)));
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused.length).toBeGreaterThan(0);
  expect(answers.length - refused.length).toBeGreaterThanOrEqual(20);
  for (const { headers } of refused) {
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
    expect(headers.get('ratelimit-policy')).toBe('"orders";q=20;w=10');
    expect(headers.get('ratelimit')).toMatch(/^"orders";r=0;t=\d+$/);
  }
  expect(await refused[0]?.json()).toMatchObject({ statusCode: 429, code: 'RATE_LIMIT_EXCEEDED' });
});

it('keeps a product at its level', async () => {
  const sku = await newProduct(1);
  const level = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"level":5}' };
  expect((await fetch(`${shops[0]?.url}/products/${sku}/level`, level)).status).toBe(200);
  expect((await fetch(`${shops[0]?.url}/products/absent/level`, level)).status).toBe(404);
  await eventually(
    async () => {
      const { body } = await get(shops[1] as Shop, `/products/${sku}`);
      return body['stock'] === 5;
    },
    { within: 30_000, every: 50 },
  );
});

it('refuses a restock of a leader whose term is over', async () => {
  const settings = {
    port: 0,
    redisUrl: servers.redis.url,
    databaseUrl: servers.postgres.url,
    lockPrefix: undefined,
    reportInterval: 60_000,
  };
  const app = await NestFactory.createApplicationContext(ShopModule.with(settings), { logger: false });
  try {
    const restocks = app.get(RestockService);
    await app.get(LeaderElection).candidacy('restock')?.leave();
    const sku = await newProduct(0);
    const last = Number.MAX_SAFE_INTEGER;
    await restocks.restock(sku, 1, last);
    await expect(restocks.restock(sku, 1, last - 1)).rejects.toBeInstanceOf(StaleTermException);
    expect(await get(shops[1] as Shop, `/products/${sku}`)).toMatchObject({ body: { stock: 1 } });
    expect(await count('restocks', sku)).toBe(1);
  } finally {
    await app.close();
  }
});

it('shows the catalogue of the last import, and refuses one that breaks a rule', async () => {
  const [one, other] = shops as [Shop, Shop];
  const prices = Array.from({ length: 25 }, (_, index) => ({ sku: `cup-${10 + index}`, price: index }));
  expect(await post(one, '/catalogue', { version: 1, prices })).toEqual({ status: 200, body: { imported: 25 } });
  await post(other, '/catalogue', { version: 2, prices });
  expect(await get(one, '/catalogue')).toEqual({ status: 200, body: prices.map((each) => ({ ...each, version: 2 })) });
  for (const wrong of [{ version: 1 }, { version: 0, prices }, { version: 3, prices: [{ sku: 'cup-1', price: -1 }] }]) {
    expect((await post(one, '/catalogue', wrong)).status).toBe(400);
  }
});
