import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockService } from 'nest-redis-lock';
import { connect, startWith } from './kit.mjs';
import { Orders, tenants } from './several-tenants/src/orders.js';
import { TenantOrders } from './several-tenants/src/tenant-orders.js';

const app = await startWith({ providers: [Orders, TenantOrders] });
const [orders, byArgument, locks] = [Orders, TenantOrders, LockService].map((token) => app.get(token));
const redis = connect();

test('each tenant has its own value, and its own lock', async () => {
  for (const tenant of ['a', 'b', 'a']) {
    await tenants.run(tenant, async () => assert.equal(await orders.find('7'), `7 of ${tenant}`));
    assert.deepEqual(await byArgument.list(tenant), [tenant]);
  }
  const held = await locks.acquire(['tenant:a:order:7'].at(0));
  assert.equal(await tenants.run('b', () => orders.ship('7')), 'b ships 7');
  assert.equal(await byArgument.ship('b', '7'), 'b ships 7');
  await assert.rejects(locks.acquire('tenant:a:order:7', { wait: 0, reentrant: false }), { code: 'LOCK_TIMEOUT' });
  await held.release();
});

test('no tenant can choose a name that runs into the keys of another', async () => {
  const evil = 'a:order';
  const before = new Set(await redis.keys('cache:*'));
  await tenants.run(evil, () => orders.find('7'));
  const added = (await redis.keys('cache:*')).filter((key) => !before.has(key));
  assert.equal(added.length, 1);
  assert.ok(!added[0].includes('tenant:a:order:'), added[0]);
});

test('without a tenant, the method does not run', async () => {
  await assert.rejects(orders.ship('7'), /outside of a request/);
  await assert.rejects(orders.find('7'), /outside of a request/);
});

test('forget deletes the values of one tenant', async () => {
  await tenants.run('a', () => orders.find('8'));
  await tenants.run('b', () => orders.find('8'));
  await tenants.run('a', () => orders.forget());
  const keys = await redis.keys('cache:*order*8*');
  assert.equal(keys.length, 1);
  assert.ok(keys[0].includes('tenant:b'), keys[0]);
});
