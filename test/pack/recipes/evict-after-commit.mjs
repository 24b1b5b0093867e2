import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually, start, database } from './kit.mjs';
import { AppModule } from './evict-after-commit/src/app.module.js';
import { PriceService } from './evict-after-commit/src/price.service.js';
import { ProductService } from './evict-after-commit/src/product.service.js';
import { Transactions } from './evict-after-commit/src/transactions.js';

const pool = await database(`
  CREATE TABLE prices (id int PRIMARY KEY, price int NOT NULL);
  INSERT INTO prices VALUES (1, 10), (2, 10), (3, 10);
`);
const app = await start(AppModule);
const prices = app.get(PriceService);
const products = app.get(ProductService);
const transactions = app.get(Transactions);
const inDatabase = async (id) => (await pool.query('SELECT price FROM prices WHERE id = $1', [id])).rows[0].price;

test('a read after the write finds the new price', async () => {
  assert.equal(await prices.price(1), 10);
  await prices.setPrice(1, 11);
  assert.equal(await prices.price(1), 11);
  await products.setPrice(1, 12);
  assert.equal(await prices.price(1), 12);
  await products.setPriceSafely(1, 13);
  assert.equal(await prices.price(1), 13);
});

test('in the transaction of a caller, the value is forgotten after the commit', async () => {
  assert.equal(await prices.price(2), 10);
  await transactions.run(async () => {
    await prices.setPrice(2, 11);
    assert.equal(await inDatabase(2), 10, 'not committed yet');
    assert.equal(await prices.price(2), 10, 'nobody reads, and stores, what is not committed');
  });
  await eventually(async () => (await prices.price(2)) === 11);
});

test('a transaction that is rolled back forgets nothing', async () => {
  assert.equal(await prices.price(3), 10);
  await pool.query('UPDATE prices SET price = 99 WHERE id = 3'); // as another program would
  const failing = transactions.run(async () => {
    await prices.setPrice(3, 11);
    throw new Error('rolled back');
  });
  await assert.rejects(failing, /rolled back/);
  assert.equal(await prices.price(3), 10);
});
