import assert from 'node:assert/strict';
import { test } from 'node:test';
import redlockModule from 'redlock';
import { gate } from './kit.mjs';
import { ship } from './redlock/src/both.js';
import { expectExclusion, redis } from './side-by-side.mjs';

const Redlock = redlockModule.default ?? redlockModule;
const redlock = new Redlock([redis], { retryCount: 0 });
redlock.on('error', () => {});

test('with the key of this package, both exclude each other', async () => {
  await expectExclusion(async () => {
    const lock = await redlock.acquire(['lock:{a}'], 5000);
    return () => lock.release();
  });
});

test('the method of the page takes that key', async () => {
  const body = gate();
  const shipping = ship(redlock, '7', body.pass);
  await body.entered;
  assert.equal(await redis.exists('lock:{order:7}'), 1);
  body.open();
  await shipping;
});
