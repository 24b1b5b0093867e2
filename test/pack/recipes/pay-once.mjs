import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
import { database, gate, startWith } from './kit.mjs';
import { PaymentsController, Provider } from './pay-once/src/payments.controller.js';
import { Bookings, Signatures, WebhookController } from './pay-once/src/webhook.controller.js';

const pool = await database(
  'DROP TABLE IF EXISTS bookings; CREATE TABLE bookings (event text PRIMARY KEY, order_id text NOT NULL)',
);
const charges = [];
const provider = {
  charge: async (amount, { idempotencyKey }) => {
    charges.push([amount, idempotencyKey]);
    return { id: `charge-${charges.length}` };
  },
};
const signatures = {
  verified: (body, signature) => {
    assert.equal(signature, 'good');
    return JSON.parse(body.toString());
  },
};
const parts = (booking = pool) => ({
  controllers: [PaymentsController, WebhookController],
  providers: [
    Bookings,
    { provide: pg.Pool, useValue: booking },
    { provide: Provider, useValue: provider },
    { provide: Signatures, useValue: signatures },
  ],
});

async function listen(booking) {
  const signIn = (request, _response, next) => {
    request.user = { id: 'ada' };
    next();
  };
  const app = await startWith(parts(booking), { rawBody: true, listen: true, prepare: (made) => made.use(signIn) });
  const address = await app.getUrl();
  return async (path, body, headers = {}) => {
    const answer = await fetch(`${address}/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    return { status: answer.status, text: await answer.text() };
  };
}

test('a repeated request is charged once, and gets the first answer', async () => {
  const [one, other] = [await listen(), await listen()];
  const body = { orderId: '7', amount: 12 };
  const key = { 'idempotency-key': 'click-1' };
  const first = await one('payments', body, key);
  assert.deepEqual(first, { status: 201, text: '{"charge":"charge-1"}' });
  assert.deepEqual(await other('payments', body, key), first);
  assert.deepEqual(charges, [[12, 'order:7']]);
  assert.equal((await one('payments', { ...body, amount: 13 }, key)).status, 422);
  assert.equal((await one('payments', body)).status, 400);
});

test('a webhook that comes again books once', async () => {
  const [one, other] = [await listen(), await listen()];
  const event = { id: 'evt-1', orderId: '7' };
  const signed = { 'x-signature': 'good' };
  const answers = [await one('webhooks/payments', event, signed), await other('webhooks/payments', event, signed)];
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200],
  );
  assert.deepEqual((await pool.query('SELECT * FROM bookings')).rows, [{ event: 'evt-1', order_id: '7' }]);
});

test('a delivery during the booking waits for it; one after a failure books', async () => {
  const booking = gate();
  let attempts = 0;
  const failing = {
    query: async () => {
      attempts += 1;
      await booking.pass();
      if (attempts === 1) throw new Error('the database is away');
    },
  };
  const send = await listen(failing);
  const event = { id: 'evt-2', orderId: '8' };
  const signed = { 'x-signature': 'good' };
  const first = send('webhooks/payments', event, signed);
  await booking.entered;
  booking.open();
  assert.equal((await first).status, 500);
  assert.equal((await send('webhooks/payments', event, signed)).status, 200);
  assert.equal(attempts, 2);
});
