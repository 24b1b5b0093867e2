import { Redis } from 'ioredis';
import { CacheService } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { eventually } from '../support/eventually.js';
import { startLockApp } from '../support/lock-app.js';
import { RedirectableEndpoint } from '../support/redirectable-endpoint.js';

let former: RedisServer;
let primary: RedisServer;
let endpoint: RedirectableEndpoint;
let admin: Redis;

beforeAll(async () => {
  [former, primary] = await Promise.all([startRedisServer(), startRedisServer()]);
  admin = new Redis(former.url);
});
beforeEach(async () => {
  endpoint = await RedirectableEndpoint.start(former.port);
});
afterEach(async () => {
  endpoint.stop();
  await admin.call('REPLICAOF', 'NO', 'ONE');
});
afterAll(async () => {
  admin.disconnect();
  await Promise.all([former.stop(), primary.stop()]);
});

/** The connections stay open, and new ones lead to the new primary. */
async function demote(): Promise<void> {
  await admin.call('REPLICAOF', '127.0.0.1', String(primary.port));
  endpoint.leadTo(primary.port);
}

describe.each([
  ['a client of ours', () => `redis://127.0.0.1:${endpoint.port}`],
  ['a client of the user', () => new Redis(endpoint.port, '127.0.0.1')],
])('%s, whose server becomes a replica', (_whose, connect) => {
  it('finds the new primary, and says so once', async () => {
    const redis = connect();
    await using app = await startLockApp({ redis, cache: { defaults: { onRedisError: 'throw' } } });
    const cache = app.app.get(CacheService);
    await app.locks.withLock('x', async () => cache.set('k', 1));
    await demote();
    await app.locks.withLock('x', { wait: 5_000 }, async () => {});
    expect(app.logger.matching(/127.0.0.1:\d+ is read-only.*reconnecting/)).toHaveLength(1);
    expect(await cache.getOrSet('k', async () => 2)).toBe(2);
    if (redis instanceof Redis) redis.disconnect();
  });

  it('finds it even when only the cache asks', async () => {
    const redis = connect();
    await using app = await startLockApp({ redis });
    const cache = app.app.get(CacheService);
    await cache.getOrSet('c', async () => 1);
    await demote();
    await eventually(async () => {
      await cache.getOrSet('d', async () => 1);
      return cache.has('d');
    });
    if (redis instanceof Redis) redis.disconnect();
  });
});

it('a client that would not connect again is not closed, and the warning says what to do', async () => {
  const client = new Redis(endpoint.port, '127.0.0.1', { retryStrategy: () => null });
  await using app = await startLockApp({ redis: client });
  await app.locks.withLock('x', async () => {});
  await demote();
  await expect(app.locks.acquire('x', { wait: 0 })).rejects.toThrow(/READONLY.*give the address of the primary/);
  expect(
    app.logger.matching(/is read-only.*retryStrategy of its client does not reconnect: connect it to the primary/),
  ).toHaveLength(1);
  expect(client.status).toBe('ready');
  client.disconnect();
});
