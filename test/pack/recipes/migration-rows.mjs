// Runs what a page of migration has in its column "here".
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as here from 'nest-redis-lock';
import { moduleOf, start, startWith, url } from './kit.mjs';

const { rows } = await import(`./${process.env.PAGE}/src/rows.js`);
const app = await startWith({ providers: rows.flatMap(({ Decorated }) => Decorated ?? []) });
const given = {
  cache: app.get(here.CacheService),
  cacheEvents: app.get(here.CacheEvents),
  events: app.get(here.LockEvents),
  jobs: app.get(here.ScheduledJobs),
  limiter: app.get(here.RateLimiter),
  locks: app.get(here.LockService),
  semaphores: app.get(here.SemaphoreService),
  load: async () => 1,
  work: async () => {},
};

for (const { name, module, Decorated, call } of rows) {
  test(name, async () => {
    if (call) await call(given);
    if (Decorated) await app.get(Decorated).run(name.includes('.id') ? { id: '1' } : 'one', 'two');
    if (module) {
      const { DATABASE_URL: database, REDIS_URL_2: url2, REDIS_URL_3: url3 } = process.env;
      const made = await start(moduleOf({ imports: [module({ database, url, url2, url3 })] }));
      await made.get(here.LockService).withLock('a', async () => {});
    }
  });
}

test('the page has rows', () => assert.ok(rows.length >= 5));
