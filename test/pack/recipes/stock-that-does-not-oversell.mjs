import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockService } from 'nest-redis-lock';
import pg from 'pg';
import { connect, database, gate, startWith } from './kit.mjs';
import { sellOne } from './stock-that-does-not-oversell/src/one-statement.js';
import { StockService, Supplier } from './stock-that-does-not-oversell/src/stock.service.js';

const pool = await database(`
  DROP TABLE IF EXISTS products;
  CREATE TABLE products (sku text PRIMARY KEY, stock int NOT NULL, fence bigint NOT NULL DEFAULT 0);
  INSERT INTO products VALUES ('cup', 3), ('teapot', 3), ('kettle', 3);
`);
const stockOf = async (sku) => (await pool.query('SELECT stock FROM products WHERE sku = $1', [sku])).rows[0].stock;

const shop = (confirm) =>
  startWith({
    providers: [{ provide: pg.Pool, useValue: pool }, { provide: Supplier, useValue: { confirm } }, StockService],
  });

test('one statement sells what there is', async () => {
  const sold = await Promise.all(Array.from({ length: 8 }, () => sellOne(pool, 'cup')));
  assert.equal(sold.filter(Boolean).length, 3);
  assert.equal(await stockOf('cup'), 0);
});

test('two processes sell what there is', async () => {
  const shops = await Promise.all([shop(async () => {}), shop(async () => {})]);
  const sales = shops.flatMap((app) => [1, 2, 3, 4].map(() => app.get(StockService).sell('teapot', 1)));
  const results = await Promise.allSettled(sales);
  assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 3);
  assert.deepEqual(
    results.filter(({ status }) => status === 'rejected').map(({ reason }) => reason.message),
    Array(5).fill('Sold out'),
  );
  assert.equal(await stockOf('teapot'), 0);
});

test('a holder that stood still does not overwrite the next one', async () => {
  const still = gate();
  const [slow, next] = await Promise.all([shop(() => still.pass()), shop(async () => {})]);
  const late = slow.get(StockService).sell('kettle', 1);
  const refused = assert.rejects(late, { message: 'A newer holder sells this product' });
  await still.entered;
  await connect().del('lock:{stock:kettle}');
  await next.get(StockService).sell('kettle', 2);
  assert.equal(await next.get(LockService).isLocked('stock:kettle'), false);
  still.open();
  await refused;
  assert.equal(await stockOf('kettle'), 1);
});
