import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../../sample-app/src/servers/redis-server.js';
import { openCache } from '../support/cache-instance.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';

let server: RedisServer;
let redis: Redis;

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

it.each(['throw', 'open'] as const)(
  "a load whose value could not be stored in time keeps its lease no longer than Redis is away: '%s'",
  async (onRedisError) => {
    const key = `given up:${onRedisError}`;
    const proxy = await FaultProxy.start(server.port);
    await using app = await openCache({ redis: { host: '127.0.0.1', port: proxy.port }, cache: {} });
    const load = () => {
      proxy.hold();
      return 'v1';
    };
    const loading = app.cache.getOrSet(key, load, { onRedisError, lock: { lease: '10m' } });
    if (onRedisError === 'open') expect(await loading).toBe('v1');
    else await expect(loading).rejects.toMatchObject({ code: 'CACHE_BACKEND' });
    expect(await redis.exists(`lease:{cache:${key}}`)).toBe(1);
    proxy.heal();
    await eventually(async () => (await redis.exists(`lease:{cache:${key}}`)) === 0);
    await using other = await openCache({ redis: server.url, cache: {} });
    expect(await other.cache.getOrSet(key, () => 'v2')).toMatch(/^v[12]$/);
    await proxy.stop();
  },
);
