import { CacheService } from 'nest-redis-lock';
import { Redis } from 'ioredis';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

let server: RedisServer;
let plain: Redis;
beforeAll(async () => {
  server = await startRedisServer();
  plain = new Redis(server.url);
});
afterAll(async () => {
  plain.disconnect();
  await server.stop();
});

const startApp = (more = {}): Promise<LockApp> =>
  startLockApp({ redis: server.url, label: 'shop-1', cache: { l1: {} }, failFast: true, ...more });

it('nothing is logged by processes that contend, read, write and wait in vain', async () => {
  await using one = await startApp();
  await using two = await startApp();
  const caches = [one, two].map(({ app }) => app.get(CacheService));
  const work = [one, two].map(async ({ locks }) => {
    for (let time = 0; time < 50; time++) {
      await locks.withLock('hot', { wait: 60_000 }, async () => {});
      await locks.withLock('read', { wait: 60_000, mode: 'read' }, async () => {});
      await locks.withLock(['b', 'a'], { wait: 60_000 }, async () => {});
    }
  });
  await Promise.all(work);
  const held = await one.locks.acquire('busy', { ttl: 1_000 });
  await expect(two.locks.acquire('busy', { wait: 1_500 })).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
  await held.release();
  for (let time = 0; time < 20; time++) {
    await Promise.all(caches.map((cache) => cache.getOrSet('value', () => 'loaded', { tags: ['tag'] })));
    await caches[time % 2]?.deleteByTag('tag');
  }
  expect([...one.logger.lines, ...two.logger.lines]).toEqual([]);
});

it('a lost lock is one line with its name, the label of its owner, how long ago it was asked for and a remedy', async () => {
  await using app = await startApp();
  for (let time = 0; time < 100; time++) {
    const held = await app.locks.acquire('order:7', { ttl: 3_000 });
    await plain.del('lock:{order:7}');
    await held.extend().catch(() => {});
    await expect(held.release()).rejects.toMatchObject({ code: 'LOCK_LOST' });
  }
  const lost = () => app.logger.matching(/order:7/);
  expect(lost()).toEqual([
    expect.stringMatching(
      /^Lock "order:7" lost \(taken\); owner \S+, fencing token \d+; shop-1 asked for it \d+ ms ago. Remedy: .*fencing token/,
    ),
  ]);
  const other = await app.locks.acquire('order:8');
  await plain.del('lock:{order:8}');
  await other.extend().catch(() => {});
  expect(app.logger.matching(/order:8/)).toHaveLength(1);
  await app.close();
  expect(lost()).toHaveLength(2);
  expect(lost()[1]).toContain('and 98 more of this kind');
});

it('a renewal and a release that fail are a line each, with the name and the label', async () => {
  await using app = await startApp({ commandTimeout: 200, cache: false });
  const lost = await app.locks.acquire('silent', { ttl: 2_000 });
  const released = await app.locks.acquire('never', { ttl: 2_000, renew: false });
  server.process.pause();
  await released.release();
  await eventually(() => !lost.held);
  await eventually(() => app.logger.matching(/never confirmed/).length > 0);
  server.process.resume();
  expect(app.logger.matching(/^Renewal/)).toEqual([
    expect.stringMatching(/^Renewal of "silent" failed for shop-1: .*; repeated until the lease ends$/),
  ]);
  expect(app.logger.matching(/never confirmed/)).toEqual([
    expect.stringMatching(/^Release of "never" \(owner \S+, shop-1\) was never confirmed; its lease ends it$/),
  ]);
  expect(app.logger.matching(/"silent" lost/)).toHaveLength(1);
});

it('a stored value that cannot be read is one line with its key, and nothing of what is in it', async () => {
  await using app = await startApp();
  const cache = app.app.get(CacheService);
  const head = Buffer.from([1, 64]);
  await plain.set('cache:broken', Buffer.concat([head, Buffer.from('zzzzzzz\n{"password": hunter2')]), 'PX', 60_000);
  for (let time = 0; time < 100; time++) await cache.get('broken');
  expect(app.logger.lines.map(({ text }) => text)).toEqual([
    'The stored value of "broken" cannot be read and counts as absent: it is not valid JSON',
  ]);
});
