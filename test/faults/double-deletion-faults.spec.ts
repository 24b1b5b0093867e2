import { openCache } from '../support/cache-instance.js';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';

let server: RedisServer;
let proxy: FaultProxy;

beforeAll(async () => {
  server = await startRedisServer();
  proxy = await FaultProxy.start(server.port);
});
afterAll(async () => {
  await proxy.stop();
  await server.stop();
});

it('deletes by prefix although the process that wrote was killed during its write', async () => {
  await using other = await openCache({ redis: server.url });
  const child = Child.start('dies-in-double-deletion.mjs', [String(server.port), 'killed:', '1000']);
  await child.says('writes');
  await child.kill();
  await other.cache.mset({ 'killed:1': 'old', 'killed:2': 'old', kept: 'new' }, { ttl: '1h' });
  await eventually(async () =>
    (await other.cache.mget(['killed:1', 'killed:2'])).every((value) => value === undefined),
  );
  expect(await other.cache.get('kept')).toBe('new');
});

it('does not write if Redis is away and the deletion must not be missed, and writes otherwise', async () => {
  await using instance = await openCache({
    redis: { host: '127.0.0.1', port: proxy.port },
    cache: { commandTimeout: '200ms' },
  });
  const { cache, logger } = instance;
  await cache.set('away:1', 'old', { ttl: '1h' });
  proxy.hold();
  let writes = 0;
  const write = async () => (writes += 1);
  const strict = cache.doubleDeleteByPrefix('away:', write, { delay: 1, onRedisError: 'throw' });
  await expect(strict).rejects.toThrow(/deletion by prefix "away:" failed/);
  expect(writes).toBe(0);
  expect(await cache.doubleDeleteByPrefix('away:', write, { delay: 1 })).toBe(1);
  expect(logger.matching(/did not schedule the second deletion of prefix "away:"/)).toHaveLength(1);
  proxy.heal();
  await eventually(() => cache.stats().unconfirmedInvalidations === 0);
  expect(await cache.get('away:1')).toBeUndefined();
});
