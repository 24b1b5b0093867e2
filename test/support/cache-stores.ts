import { createClient, createCluster } from '@redis/client';
import type { CacheStore } from '../../lib/contracts/cache-store.js';
import { memoryCacheStore } from '../../lib/backends/memory/memory-cache-store.js';
import { openRedisCacheStore } from '../../lib/backends/redis/cache/redis-cache-store.js';
import type { RedisConnection } from '../../lib/options/redis-connection.js';
import { startRedisServer } from './servers/redis-server.js';
import { startRedisCluster } from './servers/redis-cluster.js';

export interface OpenCacheStore {
  readonly store: CacheStore;
  /** As another process sees the same values. */
  readonly other: CacheStore;
  close(): Promise<void>;
}

export interface CacheStoreKind {
  readonly name: string;
  /** Whether what the store is on ends with the store. */
  readonly ownsConnection: boolean;
  open(): Promise<OpenCacheStore>;
}

const inMemory: CacheStoreKind = {
  name: 'memory',
  ownsConnection: true,
  open: async () => {
    const store = memoryCacheStore();
    return { store, other: store, close: async () => store.close() };
  },
};

const onRedis: CacheStoreKind = {
  name: 'redis',
  ownsConnection: true,
  open: async () => {
    const server = await startRedisServer();
    return openTwo(server.url, server.url, () => server.stop());
  },
};

const onCluster: CacheStoreKind = {
  name: 'cluster',
  ownsConnection: false,
  open: async () => {
    const cluster = await startRedisCluster();
    const clients = [cluster.client(), cluster.client()] as const;
    return openTwo(...clients, async () => {
      for (const client of clients) client.disconnect();
      await cluster.stop();
    });
  },
};

const byNodeRedis: CacheStoreKind = {
  name: 'redis by node-redis',
  ownsConnection: false,
  open: async () => {
    const server = await startRedisServer();
    const clients = [createClient({ url: server.url }), createClient({ url: server.url })] as const;
    await Promise.all(clients.map((client) => client.on('error', () => {}).connect()));
    return openTwo(...clients, async () => {
      for (const client of clients) client.destroy();
      await server.stop();
    });
  },
};

const onClusterByNodeRedis: CacheStoreKind = {
  name: 'cluster by node-redis',
  ownsConnection: false,
  open: async () => {
    const cluster = await startRedisCluster();
    const rootNodes = cluster.servers.map(({ url }) => ({ url }));
    const clients = [createCluster({ rootNodes }), createCluster({ rootNodes })] as const;
    await Promise.all(clients.map((client) => client.on('error', () => {}).connect()));
    return openTwo(...clients, async () => {
      for (const client of clients) client.destroy();
      await cluster.stop();
    });
  },
};

export const cacheStores: readonly CacheStoreKind[] = [inMemory, onRedis, onCluster, byNodeRedis, onClusterByNodeRedis];

function openTwo(one: RedisConnection, another: RedisConnection, stop: () => Promise<void>): OpenCacheStore {
  const [store, other] = [one, another].map((connection) => openRedisCacheStore(connection, 'shop')) as [
    CacheStore,
    CacheStore,
  ];
  const close = async () => {
    store.close();
    other.close();
    await stop();
  };
  return { store, other, close };
}
