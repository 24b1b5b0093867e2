import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import pg from 'pg';
import type { Shop } from '../../sample-app/demo/shop.js';
import { settingsFromEnvironment } from '../../sample-app/src/settings.js';
import { madeProgram } from '../support/child.js';
import { get, post, startShop, startShopServers, type ShopServers } from '../support/shop.js';

const PROGRAM = madeProgram('dist-sample/shop/main.js');
const NUL = String.fromCharCode(0);

let servers: ShopServers;
let shop: Shop;
let sku: string;

beforeAll(async () => {
  servers = await startShopServers();
  shop = await startShop(servers);
  sku = `sku-${randomUUID()}`;
  await post(shop, '/products', { sku, stock: 5 });
}, 240_000);
afterAll(async () => {
  await shop?.process.stop();
  await servers.stop();
});

function errorBody(statusCode: number, code: unknown = expect.any(String)) {
  return { statusCode, code, message: expect.any(String) };
}

it.each([
  ['no sku', { stock: 1 }],
  ['an empty sku', { sku: '', stock: 1 }],
  ['a blank sku', { sku: ' ', stock: 1 }],
  ['a sku that is a folder', { sku: '.', stock: 1 }],
  ['a sku that is the folder above', { sku: '..', stock: 1 }],
  ['NUL in the sku', { sku: `a${NUL}b`, stock: 1 }],
  ['half a surrogate pair in the sku', { sku: 'a\ud800', stock: 1 }],
  ['a name of null', { sku: 'a', name: null, stock: 1 }],
  ['a number as name', { sku: 'a', name: 7, stock: 1 }],
  ['a blank name', { sku: 'a', name: '\u00a0', stock: 1 }],
  ['NUL in the name', { sku: 'a', name: NUL, stock: 1 }],
  ['a name too long', { sku: 'a', name: 'x'.repeat(201), stock: 1 }],
  ['a negative stock', { sku: 'a', stock: -1 }],
  ['a list', []],
  ['no JSON', '{"sku": '],
])('refuses a product with %s', async (_, product) => {
  expect(await post(shop, '/products', product)).toEqual({ status: 400, body: errorBody(400) });
});

it.each([
  ['a blank number', { quantity: 1, orderId: '   ' }],
  ['NUL in its number', { quantity: 1, orderId: NUL }],
  ['half a surrogate pair in its number', { quantity: 1, orderId: '\ud800' }],
  ['another half', { quantity: 1, orderId: 'a\udfffb' }],
  ['null as its number', { quantity: 1, orderId: null }],
  ['too many pieces', { quantity: 1e12, orderId: 'x' }],
])('refuses an order with %s', async (_, order) => {
  expect(await post(shop, `/products/${sku}/deduct`, order)).toEqual({ status: 400, body: errorBody(400) });
});

it.each(['%00', '%20', 'a%00', 'x'.repeat(101), '%ff'])('refuses the product %s in an address', async (name) => {
  const refused = { status: 400, body: errorBody(400) };
  expect(await get(shop, `/products/${name}`)).toEqual(refused);
  expect(await post(shop, `/products/${name}/restock`, { quantity: 1 })).toEqual(refused);
  expect(await post(shop, `/products/${name}/deduct`, { quantity: 1, orderId: randomUUID() })).toEqual(refused);
});

it.each(['ünïcödé', 'a/b', 'a%b', '…', '😀', '...'])('sells a product named %s', async (named) => {
  const path = `/products/${encodeURIComponent(named)}`;
  expect((await post(shop, '/products', { sku: named, stock: 2 })).status).toBe(201);
  expect(await get(shop, path)).toMatchObject({ status: 200, body: { sku: named, stock: 2 } });
  const order = { quantity: 1, orderId: `${named}-1` };
  expect(await post(shop, `${path}/deduct`, order)).toMatchObject({ status: 201, body: { stock: 1 } });
});

it('refuses a restock beyond what the stock can hold', async () => {
  const many = `sku-${randomUUID()}`;
  await post(shop, '/products', { sku: many, stock: 1 });
  const database = new pg.Client(servers.postgres.url);
  await database.connect();
  await database.query('UPDATE products SET stock = 2147483600 WHERE sku = $1', [many]);
  await database.end();
  const restock = (quantity: number) => post(shop, `/products/${many}/restock`, { quantity });
  expect(await restock(48)).toEqual({ status: 400, body: errorBody(400, 'STOCK_LIMIT') });
  expect((await restock(47)).status).toBe(200);
});

it('gives all errors one shape', async () => {
  const order = { quantity: 9, orderId: randomUUID() };
  expect(await post(shop, `/products/${sku}/deduct`, order)).toEqual({
    status: 409,
    body: errorBody(409, 'OUT_OF_STOCK'),
  });
  expect(await post(shop, '/products', { sku, stock: 1 })).toEqual({ status: 409, body: errorBody(409, 'CONFLICT') });
  expect(await get(shop, '/products/absent')).toEqual({ status: 404, body: errorBody(404, 'NOT_FOUND') });
  expect(await get(shop, '/nowhere')).toEqual({ status: 404, body: errorBody(404, 'NOT_FOUND') });
  const large = { sku: 'x'.repeat(200_000), stock: 1 };
  expect(await post(shop, '/products', large)).toEqual({ status: 413, body: errorBody(413, 'PAYLOAD_TOO_LARGE') });
});

it('says in its documentation what each operation is for, and what its errors look like', async () => {
  const { body } = await get(shop, '/docs-json');
  const paths = body['paths'] as Record<string, Record<string, { summary?: string }>>;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { summary }]) => ({ path, method, summary })),
  );
  expect(operations.length).toBeGreaterThanOrEqual(6);
  expect(operations.filter(({ summary }) => !summary)).toEqual([]);
  expect(JSON.stringify(body)).toContain('#/components/schemas/ErrorBody');
});

it.each([
  [{ PORT: '70000' }, /^PORT is "70000": give a whole number from 0 to 65535/],
  [{ REPORT_INTERVAL: String(2 ** 31) }, /^REPORT_INTERVAL is "2147483648": .* to 2147483647/],
  [{ LOCK_TTL: '1s' }, /^LOCK_TTL is "1s"/],
  [{ LOCK_PREFIX: '' }, /^LOCK_PREFIX is ""/],
  [{ LOCK_PREFIX: '{shop}' }, /^LOCK_PREFIX is "\{shop\}"/],
  [{ REDIS_URL: '' }, /^REDIS_URL is not set/],
  [{ WITHOUT: 'once,hope' }, /^WITHOUT is "once,hope": give some of once, rate-limit, semaphore/],
])('refuses the setting %j', (env, message) => {
  const settings = { REDIS_URL: 'redis://localhost', DATABASE_URL: 'postgres://localhost' };
  expect(() => settingsFromEnvironment({ ...settings, ...env })).toThrow(message);
});

describe('says in one line why it cannot start', () => {
  async function failsWith(env: Record<string, string>): Promise<string> {
    const settings = { PORT: '0', REDIS_URL: servers.redis.url, DATABASE_URL: servers.postgres.url, ...env };
    const failed = await promisify(execFile)(process.execPath, [PROGRAM], {
      env: { ...process.env, ...settings },
      timeout: 60_000,
    }).catch((error: unknown) => error);
    expect(failed).toMatchObject({ code: 1 });
    const { stdout, stderr } = failed as { stdout: string; stderr: string };
    expect(`${stdout}${stderr}`.trim().split('\n')).toHaveLength(1);
    return stderr;
  }

  it('a setting that cannot be', async () => {
    expect(await failsWith({ PORT: '70000' })).toMatch(/^PORT is "70000"/);
  });

  it('a database that does not answer, without its password', async () => {
    const refused = await failsWith({ DATABASE_URL: 'postgres://me:secret@127.0.0.1:1/shop' });
    expect(refused).toMatch(/^DATABASE_URL: no answer from 127\.0\.0\.1:1\/shop \(connect ECONNREFUSED/);
    expect(refused).not.toContain('secret');
  });

  it('a database that is not there', async () => {
    const url = servers.postgres.url.replace(/\/postgres$/, '/absent');
    expect(await failsWith({ DATABASE_URL: url })).toMatch(/^DATABASE_URL: .* says: database "absent" does not exist/);
  });

  it('a port that is taken', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, resolve));
    const { port } = other.address() as AddressInfo;
    expect(await failsWith({ PORT: String(port) })).toMatch(new RegExp(`^PORT ${port} is taken: set PORT`));
    other.close();
  });
});
