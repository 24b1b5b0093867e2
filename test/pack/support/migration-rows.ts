/** The beginning of the module: what the rows may name. */
const HEAD = `
import { ConflictException } from '@nestjs/common';
import {
  CacheEvents, CacheEvict, CacheService, Cached, DistributedLock, Idempotent, LockError, LockEvents, LockService,
  LockTimeoutError, RateLimiter, RateLimitExceededError, RateLimitGuard, RateLimitPolicy, RedisLockModule,
  ScheduledJobs, ScheduledLock, SemaphoreService, SkipRateLimit, exponentialBackoff,
} from 'nest-redis-lock';
import { memory } from 'nest-redis-lock/memory';
import { postgres } from 'nest-redis-lock/postgres';
import { redlock } from 'nest-redis-lock/redlock';

interface Given {
  cache: CacheService; cacheEvents: CacheEvents; events: LockEvents; jobs: ScheduledJobs; limiter: RateLimiter;
  locks: LockService; semaphores: SemaphoreService; load(): Promise<number>; work(with_?: unknown): Promise<void>;
}
interface Places { database: string; url: string; url2: string; url3: string }
const locale = () => 'en';
`;

/** A module of what a page of migration has in its column "here": modules, decorated classes and functions. */
export function moduleOfRows(page: string): string {
  const table = page.slice(page.indexOf('| here'), page.indexOf('\n## '));
  const cells = table.split('\n').map((line) => line.split(/(?<!\\)\|/)[2] ?? '');
  const rows = cells.flatMap((cell) => /^ `(.+)` *$/.exec(cell)?.[1] ?? []);
  if (rows.length < 5) throw new Error('The page has no table with a column "here"');
  const given = 'cache, cacheEvents, events, jobs, limiter, load, locks, semaphores, work';
  const parts = rows.map((row) => {
    if (row.startsWith('RedisLockModule')) return `module: ({ database, url, url2, url3 }: Places) => ${row}`;
    if (!row.startsWith('@')) return `call: async ({ ${given} }: Given) => { ${row} }`;
    return `Decorated: (() => { class Users { ${row} async run(first: any, second: any): Promise<any> {} } return Users; })()`;
  });
  const lines = parts.map((part, index) => `  { name: ${JSON.stringify(rows[index])}, ${part} },`);
  return `${HEAD}\nexport const rows = [\n${lines.join('\n')}\n];\n`;
}
