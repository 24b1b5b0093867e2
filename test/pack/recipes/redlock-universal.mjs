import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLock, IoredisAdapter } from 'redlock-universal';
import { gate } from './kit.mjs';
import { ship } from './redlock-universal/src/both.js';
import { expectExclusion, redis } from './side-by-side.mjs';

const adapter = new IoredisAdapter(redis);

test('with the key of this package, both exclude each other', async () => {
  await expectExclusion(async () => {
    const lock = createLock({ adapter, key: 'lock:{a}', ttl: 5000, retryAttempts: 0 });
    const handle = await lock.acquire();
    return () => lock.release(handle);
  });
});

test('the method of the page takes that key', async () => {
  const body = gate();
  const shipping = ship(adapter, '7', body.pass);
  await body.entered;
  assert.equal(await redis.exists('lock:{order:7}'), 1);
  body.open();
  await shipping;
});
