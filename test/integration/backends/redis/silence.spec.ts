import { createClient } from '@redis/client';
import { CacheService, type RedisConnection } from 'nest-redis-lock';
import { redlock } from 'nest-redis-lock/redlock';
import * as version5 from 'redis-client-5';
import { startLockApp } from '../../../support/lock-app.js';
import { startRedisServer } from '../../../support/servers/redis-server.js';
import {
  type Address,
  clusterOf,
  ends,
  ioredis,
  node,
  nodeRedis,
  proxyTo,
  server,
  serves,
  usesServers,
} from '../../../support/silenced-redis.js';

usesServers();

const KINDS: [string, () => number, (address: Address) => RedisConnection | Promise<RedisConnection>][] = [
  ['a node-redis client', () => server.port, (address) => nodeRedis(createClient, address)],
  [
    'a client of node-redis 5',
    () => server.port,
    (to) => nodeRedis(version5.createClient as unknown as typeof createClient, to),
  ],
  ['options', () => server.port, (address) => address],
  ['an ioredis client', () => server.port, ioredis],
  [
    'an ioredis client that retries for long',
    () => server.port,
    (to) => ioredis({ ...to, maxRetriesPerRequest: null }),
  ],
  ['an ioredis Cluster', () => node.port, clusterOf],
];

describe('a connection that falls silent, or out of step, is replaced', () => {
  // Side by side, as each takes two of the periods in which connections are looked at.
  it.concurrent.each(KINDS)(
    'of %s',
    async (kind, target, make) => {
      const proxy = await proxyTo(target());
      const connection = await make({ host: '127.0.0.1', port: proxy.port });
      const app = await startLockApp({ redis: connection, cache: {}, commandTimeout: 2_000 });
      ends.push(() => app.close());
      await serves(app);
      proxy.silence();
      await serves(app);
      if (kind.includes('node-redis')) {
        // The copy that stands in for the client.
        proxy.silence();
        await serves(app);
      }
      await app.app.get(CacheService).set('key', 1);
      expect(await app.app.get(CacheService).get('key')).toBe(1);
    },
    40_000,
  );

  it.each(KINDS)(
    'where it loses a reply, of %s',
    async (_kind, target, make) => {
      const proxy = await proxyTo(target());
      const connection = await make({ host: '127.0.0.1', port: proxy.port });
      const app = await startLockApp({ redis: connection, cache: {}, commandTimeout: 500, failFast: true });
      ends.push(() => app.close());
      const lost = proxy.mixUp('lost');
      await serves(app);
      expect(lost()).toBe(true);
      await app.app.get(CacheService).set('key', 1);
      expect(await app.app.get(CacheService).get('key')).toBe(1);
    },
    40_000,
  );

  it.concurrent(
    'of each node of redlock()',
    async () => {
      const servers = await Promise.all([1, 2, 3].map(() => startRedisServer()));
      ends.push(() => Promise.all(servers.map((each) => each.stop())));
      const proxies = await Promise.all(servers.map(({ port }) => proxyTo(port)));
      const backend = redlock(proxies.map(({ port }) => ioredis({ host: '127.0.0.1', port })));
      const app = await startLockApp({ backend, cache: false, commandTimeout: 2_000 });
      ends.push(() => app.close());
      await serves(app);
      for (const proxy of proxies) proxy.silence();
      await serves(app);
    },
    40_000,
  );

  it.concurrent(
    'but not while it waits for a blocking command of the application',
    async () => {
      const client = ioredis({ host: '127.0.0.1', port: server.port });
      const app = await startLockApp({ redis: client, cache: false, commandTimeout: 2_000 });
      ends.push(() => app.close());
      await serves(app);
      const { stream } = client;
      const popped = client.blpop('list', 7);
      const refused = app.locks.acquire('name', { wait: 0 }).catch((error: unknown) => error);
      expect(await popped).toBeNull();
      expect(await refused).toBeInstanceOf(Error);
      expect(client.stream).toBe(stream);
    },
    40_000,
  );
});
