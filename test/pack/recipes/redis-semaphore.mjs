import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockService } from 'nest-redis-lock';
import { Mutex } from 'redis-semaphore';
import { connect, gate, startWith } from './kit.mjs';
import { ship } from './redis-semaphore/src/both.js';

const redis = connect();
const options = { acquireTimeout: 100, lockTimeout: 5000, retryInterval: 20 };

test('the two do not exclude each other, whatever the key', async () => {
  const locks = (await startWith({})).get(LockService);
  await locks.withLock('a', async () => {
    const mutex = new Mutex(redis, 'lock:{a}', options);
    await mutex.acquire();
    await mutex.release();
  });
});

test('the method of the page keeps both out', async () => {
  const locks = (await startWith({})).get(LockService);
  const body = gate();
  const shipping = ship(locks, redis, '7', body.pass);
  await body.entered;
  const other = (await startWith({})).get(LockService);
  assert.equal(await other.tryAcquire('order:7'), null);
  await assert.rejects(new Mutex(redis, 'order:7', options).acquire());
  body.open();
  await shipping;
});
