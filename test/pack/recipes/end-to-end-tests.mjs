import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockService } from 'nest-redis-lock';
import { connect, runJest, start } from './kit.mjs';

test('the test of the page passes without a server', async () => {
  const said = await runJest('end-to-end-tests/src', { REDIS_URL: 'redis://127.0.0.1:1' });
  assert.match(said, /Tests: +1 passed, 1 total/);
});

test('on a real Redis, each worker of jest has keys of its own', async () => {
  process.env.JEST_WORKER_ID = '3';
  const { AppModule } = await import('./end-to-end-tests/src/app.module.js');
  const app = await start(AppModule);
  await app.get(LockService).withLock('order:7', async () => {
    assert.equal(await connect().exists('shop-test-3:lock:{order:7}'), 1);
  });
});
