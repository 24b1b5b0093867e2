import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import pg from 'pg';
import { PaymentProvider } from '../../sample-app/demo/payment-provider.js';
import type { Shop } from '../../sample-app/demo/shop.js';
import { PAYMENTS_AT_ONCE } from '../../sample-app/demo/shop-facts.js';
import { audit } from '../../sample-app/demo/verdict.js';
import { eventually } from '../support/eventually.js';
import { post, startShop, startShopServers, type ShopServers } from '../support/shop.js';
import { ShopSale } from './shop-sale.js';

/** Longer than the sale: what a process leaves would be found after its end. */
const LOCK_TTL = 120_000;
const PROCESSES = 3;
const [STOCK, ORDERS, AT_ONCE] = [700, 760, 45];
const [PAID_ORDERS, PAID_AT_ONCE] = [150, 24];
/** How a process that ends refuses a request: the connection, or before it does anything. */
const REFUSED = /ECONNREFUSED|ECONNRESET|EPIPE|UND_ERR_SOCKET|^(423|503|409 OUT_OF_STOCK)/;
/** How a process that does not end refuses a request: it was busy for too long, or the product is sold out. */
const BUSY = /^(423|429 SEMAPHORE_TIMEOUT|503 PAYMENT_UNAVAILABLE|409 OUT_OF_STOCK)/;

/** Milliseconds: a busy machine may take ten times as long as a quiet one. */
const PATIENT = { within: 90_000 } as const;

let servers: ShopServers;
let provider: PaymentProvider;
let database: pg.Pool;
let redis: Redis;
let shops: Shop[] = [];

beforeAll(async () => {
  servers = await startShopServers();
  provider = await PaymentProvider.start();
  database = new pg.Pool({ connectionString: servers.postgres.url });
  redis = new Redis(servers.redis.url);
}, 240_000);
beforeEach(async () => {
  const names = Array.from({ length: PROCESSES }, (_, index) => writerOf(index));
  shops = await Promise.all(
    names.map((name) =>
      startShop(servers, {
        DATABASE_URL: `${servers.postgres.url}?application_name=${name}`,
        PAYMENT_URL: provider.url,
        LOCK_TTL: String(LOCK_TTL),
        REPORT_INTERVAL: '500',
        RESTOCK_INTERVAL: '50',
      }),
    ),
  );
  await database.query(
    "ALTER TABLE orders ADD COLUMN IF NOT EXISTS writer text NOT NULL DEFAULT current_setting('application_name')",
  );
}, 120_000);
afterEach(async () => {
  await Promise.all(shops.map((shop) => shop.process.stop()));
});
afterAll(async () => {
  redis.disconnect();
  await database.end();
  await provider[Symbol.asyncDispose]();
  await servers.stop();
});

function writerOf(index: number): string {
  return `shop-${index}`;
}

async function newProduct(stock: number): Promise<string> {
  const sku = `sku-${randomUUID()}`;
  await post(shops[0] as Shop, '/products', { sku, stock });
  return sku;
}

/** As what a process of the shop owns locks: once for each of its backends. */
async function ownersOf(shop: Shop): Promise<string[]> {
  const keys = await redis.keys('lock:{*}:label');
  const labels = await Promise.all(keys.map((key) => redis.get(key)));
  const own = keys.filter((_, index) => labels[index]?.endsWith(`:${shop.process.pid}`));
  return own.map((key) => key.slice('lock:{'.length, -'}:label'.length));
}

/** As what the processes of the shop hold permits, of those that have waited for one. */
async function permitHolders(): Promise<string[]> {
  const channels = (await redis.pubsub('CHANNELS', 'primitive:process:????????-*')) as string[];
  return channels.map((channel) => channel.slice('primitive:process:'.length)).filter((id) => !id.includes(':'));
}

/** The process whose leader restocks: its lock is one that no request ends. */
async function leader(): Promise<Shop> {
  const owner = await eventually(async () => {
    const [key] = (await redis.keys('lock:{*restock*}')).filter((each) => each.endsWith('}'));
    return key === undefined ? undefined : redis.get(key);
  });
  const label = await eventually(() => redis.get(`lock:{${owner.slice(0, owner.lastIndexOf(':'))}}:label`));
  const leading = shops.find(({ process }) => label.endsWith(`:${process.pid}`));
  if (!leading) throw new Error(`No process of the shop has the label ${label}`);
  return leading;
}

/**
 * All that Redis keeps, as text for each key, but for the times of heartbeats, which count for nothing without a place
 * in the queue.
 */
async function everything(): Promise<string[]> {
  const keys = (await redis.keys('*')).filter((key) => !key.endsWith(':processes'));
  return Promise.all(
    keys.map(async (key) => {
      const type = await redis.type(key);
      if (type === 'string') return `${key} = ${await redis.get(key)}`;
      if (type === 'hash') return `${key} = ${JSON.stringify(await redis.hgetall(key))}`;
      if (type === 'list') return `${key} = ${(await redis.lrange(key, 0, -1)).join()}`;
      if (type === 'set') return `${key} = ${(await redis.smembers(key)).join()}`;
      if (type === 'zset') return `${key} = ${(await redis.zrange(key, '0', '-1')).join()}`;
      return key;
    }),
  );
}

async function ordersOf(sku: string, writer: string): Promise<string[]> {
  const { rows } = await database.query<{ order_id: string }>(
    'SELECT order_id FROM orders WHERE sku = $1 AND writer = $2',
    [sku, writer],
  );
  return rows.map(({ order_id }) => order_id);
}

it.each(['lock', 'fenced'] as const)(
  'loses no order and leaves no lock when SIGTERM ends one of three processes in mid-sale (%s)',
  async (strategy) => {
    const [sku, paidSku] = [await newProduct(STOCK), await newProduct(PAID_ORDERS)];
    const stopping = await leader();
    const sale = new ShopSale(shops);
    const seen = sale.at(stopping);
    // No payment is answered until callers wait for a permit in each process.
    const answerPayments = provider.gather(PAYMENTS_AT_ONCE, 60_000);
    const deducting = sale.deduct(strategy, sku, ORDERS, AT_ONCE);
    const paying = sale.place(paidSku, PAID_ORDERS, PAID_AT_ONCE);

    const owners = await eventually(async () => {
      const found = await ownersOf(stopping);
      return found.length === 2 ? found : undefined;
    }, PATIENT);
    const holders = await eventually(async () => {
      const found = await permitHolders();
      return found.length === PROCESSES ? found : undefined;
    }, PATIENT);
    await eventually(() => sale.accepted > STOCK / 10 && seen.underWay > 0, { ...PATIENT, every: 1 });
    const [underWay, acceptedHere] = [seen.underWay, seen.accepted.size];
    expect(shops.flatMap((shop) => sale.at(shop).refusals).filter((kind) => !BUSY.test(kind))).toEqual([]);
    process.kill(stopping.process.pid, 'SIGTERM');
    // Not before: callers of the other processes are to hold permits when this one has ended.
    answerPayments();
    expect(await stopping.process.exited).toBe(0);
    const atItsEnd = sale.accepted;

    // A job that has just run keeps its lock for its `atLeastFor`.
    const left = (await everything()).filter((entry) => !entry.startsWith('lock:{schedule:'));
    const alive = await permitHolders();
    const ended = [...owners, ...holders.filter((id) => !alive.includes(id))];
    expect(ended).toHaveLength(3);
    expect(left.filter((entry) => ended.some((id) => entry.includes(id)))).toEqual([]);

    const [result, paid] = [await deducting, await paying];
    // Its clients would go on to send orders on their open connections, and keep it until the sale is over.
    expect(atItsEnd).toBeLessThan(STOCK);
    expect(underWay).toBeGreaterThan(0);
    expect(seen.accepted.size).toBeGreaterThan(acceptedHere);
    expect(seen.refusals.filter((kind) => !REFUSED.test(kind))).toEqual([]);

    expect(result).toMatchObject({ accepted: STOCK, outOfStock: ORDERS - STOCK, busy: 0, errors: 0 });
    const audited = await audit(database, sku, STOCK, result);
    expect(audited).toMatchObject({ orders: STOCK, stockLeft: 0, invariants: { I1: true, I2: true, I3: true } });
    const { rows } = await database.query<{ order_id: string }>('SELECT order_id FROM orders WHERE sku = $1', [
      paidSku,
    ]);
    expect(rows.map(({ order_id }) => order_id).toSorted()).toEqual(paid.toSorted());
    expect(paid.filter((orderId) => provider.chargesFor(orderId) !== 1)).toEqual([]);

    // What a process wrote it also answered: a request that it refused had written nothing.
    for (const [index, shop] of shops.entries()) {
      const written = [...(await ordersOf(sku, writerOf(index))), ...(await ordersOf(paidSku, writerOf(index)))];
      const { accepted } = sale.at(shop);
      expect(written.filter((orderId) => !accepted.has(orderId))).toEqual([]);
    }
  },
  240_000,
);
