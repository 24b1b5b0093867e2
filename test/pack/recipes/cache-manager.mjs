import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createKeyv } from '@keyv/redis';
import { CACHE_MANAGER, CacheModule } from '@nestjs/cache-manager';
import { CacheService } from 'nest-redis-lock';
import { forget } from './cache-manager/src/both.js';
import { startWith, url } from './kit.mjs';

test('neither reads the values of the other, and the method of the page forgets both', async () => {
  const app = await startWith({ imports: [CacheModule.register({ stores: [createKeyv(url)] })] });
  const [theirs, ours] = [app.get(CACHE_MANAGER), app.get(CacheService)];
  await theirs.set('product:7', 'theirs', 60_000);
  assert.equal(await ours.get('product:7'), undefined);
  await ours.set('product:7', 'ours', { ttl: '1m' });
  assert.equal(await theirs.get('product:7'), 'theirs');
  await forget(theirs, ours, 'product:7');
  assert.deepEqual([await theirs.get('product:7'), await ours.get('product:7')], [undefined, undefined]);
});
