import { setTimeout as sleep } from 'node:timers/promises';
import { Test } from '@nestjs/testing';
import { Redis } from 'ioredis';
import { CacheService, RedisLockModule } from 'nest-redis-lock';

const url = process.env['REDIS_URL'] as string;

it('learns of the changes of other programs through the installed client', async () => {
  const locks = RedisLockModule.forRoot({
    redis: url,
    prefix: 'tracked',
    cache: { l1: { bus: 'tracking', ttl: '1h' } },
  });
  const app = await (await Test.createTestingModule({ imports: [locks] }).compile()).init();
  const cache = app.get(CacheService);
  const foreign = new Redis(url);
  const read = () => cache.getOrSet<unknown>('k', () => Promise.resolve('loaded'));
  while (cache.stats().firstLevelHits === 0) {
    expect(await read()).toBe('loaded');
    await sleep(10);
  }
  await foreign.set('tracked:cache:k', '42');
  while ((await read()) !== 42) await sleep(10);
  foreign.disconnect();
  await app.close();
});
