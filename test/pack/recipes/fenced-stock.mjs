// What the recipes of both mappers promise.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, gate } from './kit.mjs';

/** `shop` makes an application with this slow step, `sell` sells one piece in it, and `stock` reads the row. */
export function testFencedStock({ shop, sell, stock, lockKey }) {
  test('two processes sell what there is', async () => {
    const shops = await Promise.all([shop(async () => {}), shop(async () => {})]);
    const results = await Promise.allSettled(shops.flatMap((app) => [1, 2, 3, 4].map(() => sell(app, 'teapot'))));
    assert.deepEqual(
      results.flatMap(({ reason }) => (reason ? [reason.message] : [])),
      Array(5).fill('Sold out'),
    );
    assert.equal(await stock('teapot'), 0);
  });

  test('a holder that stood still does not overwrite the next one', async () => {
    const still = gate();
    const [slow, next] = await Promise.all([shop(() => still.pass()), shop(async () => {})]);
    const refused = assert.rejects(sell(slow, 'kettle'), { message: 'A newer holder has this product' });
    await still.entered;
    await connect().del(lockKey);
    await sell(next, 'kettle');
    still.open();
    await refused;
    assert.equal(await stock('kettle'), 2);
  });
}
