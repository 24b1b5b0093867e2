import 'reflect-metadata';
import { HealthCheckService, HealthIndicatorService, TerminusModule } from '@nestjs/terminus';
import { Test } from '@nestjs/testing';
import { Redis } from 'ioredis';
import { LockService, memory, RedisLockModule, type LockBackend, type RedisLockModuleOptions } from 'nest-redis-lock';
import { RedisLockHealthIndicator, type HealthOptions } from 'nest-redis-lock/terminus';
import { eventually } from '../../support/eventually.js';
import { startRedisServer } from '../../support/servers/redis-server.js';

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
