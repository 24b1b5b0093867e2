import { Redis } from 'ioredis';
import { openRedisCacheStore } from '../../lib/backends/redis/cache/redis-cache-store.js';
import type { CacheStore } from '../../lib/contracts/cache-store.js';
import { eventually } from '../support/eventually.js';
import { startRedisServer } from '../support/servers/redis-server.js';

const CALLS: [what: string, call: (store: CacheStore) => PromiseLike<unknown>, command: string][] = [
  ['a deletion by prefix', (store) => store.deleteMatching({ match: { prefix: '' }, batch: 10 }), 'scan'],
  [
    'a value that is stored in time or not at all',
    (store) =>
      new Promise((resolve, reject) => {
        store.set({ key: 'key', data: 'value', ttl: 60_000, within: 60_000 }).then(resolve, reject);
      }),
    'time',
  ],
];

it.each(CALLS)('%s fails while Redis is away, and is not carried out later', async (_what, call, command) => {
  const first = await startRedisServer();
  const client = new Redis(first.url, { maxRetriesPerRequest: null, retryStrategy: () => 20 });
  client.on('error', () => {});
  await client.ping();
  const store = openRedisCacheStore(client, 'shop');
  await first.stop();
  await eventually(() => client.status !== 'ready');
  await expect(call(store)).rejects.toThrow(`Redis at 127.0.0.1:${first.port}`);
  await using second = await startRedisServer({ port: first.port });
  expect(await client.ping()).toBe('PONG');
  const admin = new Redis(second.url);
  expect(await admin.info('commandstats')).not.toContain(`cmdstat_${command}:`);
  admin.disconnect();
  store.close();
  client.disconnect();
});
