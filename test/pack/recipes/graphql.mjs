import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApolloDriver } from '@nestjs/apollo';
import { GraphQLModule } from '@nestjs/graphql';
import { CacheEvents, LockService } from 'nest-redis-lock';
import { CustomerNames } from './graphql/src/customer-names.js';
import { OrdersResolver } from './graphql/src/orders.resolver.js';
import { publicError } from './graphql/src/public-error.js';
import { Shop } from './graphql/src/shop.js';
import { gate, startWith } from './kit.mjs';

const queries = [];
const shipping = gate();
let shipped = 0;
const shop = {
  orders: async () => Array.from({ length: 50 }, (_, id) => ({ id: String(id), customerId: String(id % 5) })),
  customerNames: async (ids) => {
    queries.push([...ids]);
    return ids.map((id) => `customer ${id}`);
  },
  ship: async (id) => {
    shipped += 1;
    await shipping.pass();
    return `order ${id} is on its way`;
  },
};
const app = await startWith(
  {
    imports: [GraphQLModule.forRoot({ driver: ApolloDriver, autoSchemaFile: true, formatError: publicError })],
    providers: [OrdersResolver, CustomerNames, { provide: Shop, useValue: shop }],
  },
  { listen: true },
);
const address = `${await app.getUrl()}/graphql`;
async function ask(query) {
  const answer = await fetch(address, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query }),
  });
  return { status: answer.status, ...(await answer.json()) };
}

test('fifty orders need one query for their customers, and later none', async () => {
  let reads = 0;
  app.get(CacheEvents).on('hit', () => reads++);
  const first = await ask('{ orders { id customer } }');
  assert.equal(first.data.orders.length, 50);
  assert.equal(first.data.orders[49].customer, 'customer 4');
  assert.deepEqual(queries, [['0', '1', '2', '3', '4']]);
  await ask('{ orders { customer } }');
  assert.equal(queries.length, 1);
  assert.ok(reads > 0);
});

test('of two mutations at once, one runs; the other gets an error that says why', async () => {
  const ship = () => ask('mutation { ship(id: "7") }');
  const first = ship();
  await shipping.entered;
  const busy = await ship();
  assert.equal(busy.status, 200);
  assert.equal(busy.data, null);
  const [{ message, extensions }] = busy.errors;
  assert.equal(message, 'The resource is locked by another request. Try again later.');
  assert.deepEqual(extensions, { code: 'LOCK_TIMEOUT' });
  assert.equal(shipped, 1);
  shipping.open();
  assert.equal((await first).data.ship, 'order 7 is on its way');
  assert.equal(await app.get(LockService).isLocked('order:7'), false);
});
