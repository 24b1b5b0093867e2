import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockService } from 'nest-redis-lock';
import { connect, moduleOf, start, url } from './kit.mjs';

process.env.REDIS_PREFIX = 'configured';
process.env.CACHE_REDIS_URL = url;
const { AppModule } = await import('./config-module/src/app.module.js');
const { locks } = await import('./config-module/src/lock-options.js');

test('the options come from ConfigService', async () => {
  const app = await start(AppModule);
  await app.get(LockService).withLock('a', async () => {
    assert.equal(await connect().exists('configured:lock:{a}'), 1);
  });
});

test('a class makes them, too', async () => {
  const app = await start(moduleOf({ imports: [locks] }));
  await app.get(LockService).withLock('a', async () => assert.equal(await connect().exists('lock:{a}'), 1));
});

test('a missing variable stops the start', async () => {
  delete process.env.REDIS_PREFIX;
  await assert.rejects(start(AppModule, { logger: false, abortOnError: false }), /REDIS_PREFIX/);
});
