import 'reflect-metadata';
import { HealthCheckService, HealthIndicatorService, TerminusModule } from '@nestjs/terminus';
import { Test } from '@nestjs/testing';
import { Redis } from 'ioredis';
import {
  CacheService,
  type LockBackend,
  LockService,
  memory,
  RedisLockModule,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { type HealthOptions, RedisLockHealthIndicator } from 'nest-redis-lock/terminus';
import { eventually } from '../../support/eventually.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';

async function start(options: RedisLockModuleOptions) {
  const module = await Test.createTestingModule({
    imports: [RedisLockModule.forRoot({ shutdownGrace: 0, ...options }), TerminusModule.forRoot({ logger: false })],
    providers: [RedisLockHealthIndicator],
  }).compile();
  const app = await module.init();
  const indicator = app.get(RedisLockHealthIndicator);
  const health = app.get(HealthCheckService);
  const close = () => app.close();
  return {
    locks: app.get(LockService),
    cache: app.get(CacheService),
    check: async (how?: HealthOptions) => (await indicator.check('locks', how))['locks'],
    overall: () => health.check([() => indicator.check()]),
    close,
    [Symbol.asyncDispose]: close,
  };
}

const HEALTHY = { status: 'up', problems: [], pingMs: expect.any(Number), scriptMs: expect.any(Number) };

describe('the health of the locks', () => {
  it('is up, with latencies and what is held and waited for', async () => {
    await using server = await withServer();
    await using app = await start({ redis: server.url });
    expect(await app.check({ slow: '1m', maxLag: '1m' })).toEqual({
      ...HEALTHY,
      backend: 'redis',
      channel: 'unused',
      held: 0,
      waiting: 0,
      watchdogLagMs: expect.any(Number),
    });
    const lock = await app.locks.acquire('a');
    const waiting = app.locks.acquire('a');
    const second = await (async () => {
      await eventually(async () => (await app.check())?.['waiting'] === 1);
      return app.check({ slow: '1m', maxLag: '1m' });
    })();
    expect(second).toMatchObject({ ...HEALTHY, held: 1, waiting: 1 });
    expect((await app.overall()).status).toMatch(/ok|degraded/);
    await lock.release();
    await (await waiting).release();
  });

  it('is degraded while the server may evict held locks, and up again after the remedy', async () => {
    await using server = await withServer();
    await using app = await start({ redis: server.url });
    await server.configure('maxmemory', '100mb');
    await server.configure('maxmemory-policy', 'allkeys-lru');
    const degraded = await app.check({ slow: '1m' });
    expect(degraded).toMatchObject({ status: 'degraded', pingMs: expect.any(Number) });
    expect(degraded?.['problems']).toEqual([expect.stringContaining('maxmemory-policy is allkeys-lru')]);
    expect((await app.overall()).status).toBe('degraded');
    await server.configure('maxmemory-policy', 'noeviction');
    expect(await app.check({ slow: '1m' })).toMatchObject(HEALTHY);
  });

  it('is down, in the time limit, when the server does not answer', async () => {
    await using server = await withServer();
    await using app = await start({ redis: server.url });
    await app.check();
    server.process.pause();
    const down = await app.check({ timeout: 200 });
    expect(down).toMatchObject({
      status: 'down',
      held: 0,
      problems: [expect.stringContaining('no answer within 200 ms')],
    });
    server.process.resume();
    await eventually(async () => (await app.check({ slow: '1m' }))?.status === 'up');
  });

  it('is degraded when a request is slower than `slow`, and names the limit', async () => {
    const backend: LockBackend = memory();
    const ping = backend.ping.bind(backend);
    backend.ping = () => new Promise((resolve) => setTimeout(() => resolve(ping()), 60));
    await using app = await start({ backend });
    const slow = await app.check({ slow: 20 });
    expect(slow).toMatchObject({ status: 'degraded', backend: 'memory' });
    expect(slow?.['problems']).toEqual([expect.stringMatching(/took [\d.]+ ms, which is more than "slow" \(20 ms\)/)]);
  });

  it('is degraded when the channel for messages cannot be opened', async () => {
    await using server = await withServer();
    await server.admin.call('ACL', 'SETUSER', 'mute', 'reset', 'on', '>pw', '~*', '+@all', 'resetchannels');
    const redis = { host: '127.0.0.1', port: server.port, username: 'mute', password: 'pw' };
    await using app = await start({ redis, cache: false });
    const lock = await app.locks.acquire('a');
    const waiting = app.locks.acquire('a', { wait: '1m' });
    const degraded = await eventually(async () => {
      const checked = await app.check({ slow: '1m', maxLag: '1m' });
      return checked?.['channel'] === 'unused' ? undefined : checked;
    });
    expect(degraded).toMatchObject({ status: 'degraded', channel: 'closed' });
    expect(degraded['problems']).toEqual([expect.stringContaining('The channel for messages is closed')]);
    await lock.release();
    await (await waiting).release();
  });

  it("is degraded, or down where you say so, while the cache's own Redis does not answer", async () => {
    await using server = await withServer();
    await using values = await withServer();
    await using app = await start({ redis: server.url, cache: { redis: values.url, commandTimeout: '30s' } });
    await app.cache.set('key', 1, { ttl: '1m' });
    expect(await app.check({ slow: '1m' })).toMatchObject(HEALTHY);
    await values.stop();
    const degraded = await app.check({ slow: '1m', timeout: 1_000 });
    expect(degraded).toMatchObject({ status: 'degraded' });
    expect(degraded?.['problems']).toContainEqual(
      expect.stringMatching(/^The cache's Redis does not answer: .*Redis at /),
    );
    expect(await app.check({ timeout: 1_000, cache: 'down' })).toMatchObject({ status: 'down' });
  });

  it('is degraded when renewals are overdue because the process is busy', async () => {
    await using app = await start({ backend: memory() });
    const lock = await app.locks.acquire('a', { ttl: '1m', renew: { interval: 50 } });
    const until = performance.now() + 300;
    while (performance.now() < until);
    const checked = await app.check({ slow: '1m', maxLag: 100 });
    expect(checked).toMatchObject({ status: 'degraded', held: 1 });
    expect(checked?.['problems']).toEqual([expect.stringContaining('which is more than "maxLag" (100 ms)')]);
    await lock.release();
  });

  it('is that of the backend that calls use by default', async () => {
    await using app = await start({ backend: memory(), backends: { jobs: memory() }, defaults: { backend: 'jobs' } });
    await using _ = await app.locks.acquire('a');
    expect(await app.check()).toMatchObject({ backend: 'jobs', held: 1 });
  });

  it('is that of another backend by its name', async () => {
    await using app = await start({ backend: memory(), backends: { jobs: memory() } });
    await using _ = await app.locks.acquire('a', { backend: 'jobs' });
    expect(await app.check({ backend: 'jobs' })).toMatchObject({ backend: 'jobs', held: 1 });
    expect(await app.check()).toMatchObject({ backend: 'memory', held: 0 });
    await expect(app.check({ backend: 'none' })).rejects.toThrow('"backend" is "none"');
    await expect(app.check({ limit: 1 } as never)).rejects.toThrow('Unknown option of the health check "limit"');
  });
});

it('with Terminus 11, which knows no degraded, is up with degraded: true', async () => {
  const indicators = new HealthIndicatorService();
  const sessions = { check: (key: string) => Object.assign(indicators.check(key), { degraded: undefined }) };
  const module = await Test.createTestingModule({
    imports: [RedisLockModule.forRoot({ backend: memory() })],
    providers: [RedisLockHealthIndicator, { provide: HealthIndicatorService, useValue: sessions }],
  }).compile();
  const app = await module.init();
  const indicator = app.get(RedisLockHealthIndicator);
  const lock = await app.get(LockService).acquire('a', { ttl: '1m', renew: { interval: 50 } });
  const until = performance.now() + 200;
  while (performance.now() < until);
  const checked = await indicator.check('locks', { maxLag: 50, slow: '1m' });
  expect(checked).toMatchObject({ locks: { status: 'up', degraded: true } });
  await lock.release();
  await app.close();
});

async function withServer() {
  const server = await startRedisServer();
  const client = new Redis(server.url);
  const stop = async () => {
    client.disconnect();
    await server.stop();
  };
  return { ...server, admin: client, configure: client.config.bind(client, 'SET'), [Symbol.asyncDispose]: stop };
}

describe('the log', () => {
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
});
