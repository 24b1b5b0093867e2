import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { connect } from './kit.mjs';
import { application, handler } from './serverless/src/handler.js';

const redis = connect();
after(async () => (await application()).close());
const answered = { statusCode: 200, body: 'parcel of 7' };

async function instance(orderId) {
  const child = fork('serverless/instance.mjs', [orderId], { env: process.env });
  after(() => child.kill('SIGKILL'));
  assert.deepEqual(await once(child, 'message'), ['booking', undefined]);
  const next = () => once(child, 'message').then(([message]) => message);
  return { child, next };
}

test('an instance starts its application once, and holds nothing after its answer', async () => {
  assert.deepEqual(await handler({ orderId: '7' }), answered);
  const before = (await redis.client('LIST')).trim().split('\n').length;
  assert.deepEqual(await handler({ orderId: '7' }), answered);
  assert.equal((await redis.client('LIST')).trim().split('\n').length, before);
  assert.equal(await redis.exists('lock:{order:7}'), 0);
});

test('a busy order is answered, and so is a free one after it', async () => {
  const { child, next } = await instance('8');
  assert.deepEqual(await handler({ orderId: '8' }), { statusCode: 423, body: 'LOCK_TIMEOUT' });
  const answer = next();
  child.send('go');
  assert.equal((await answer).answer.statusCode, 200);
  assert.equal((await handler({ orderId: '8' })).statusCode, 200);
});

test('an instance that was frozen with a lock learns that it has lost it', async () => {
  const { child, next } = await instance('9');
  child.kill('SIGSTOP');
  await redis.del('lock:{order:9}'); // as the end of its lease does
  assert.equal((await handler({ orderId: '9' })).statusCode, 200);
  const answer = next();
  child.send('go');
  child.kill('SIGCONT');
  assert.deepEqual((await answer).answer, { statusCode: 500, body: 'LOCK_LOST' });
});
