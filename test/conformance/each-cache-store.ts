import { randomUUID } from 'node:crypto';
import { createClient, createCluster } from '@redis/client';
import type { RedisConnection } from 'nest-redis-lock';
import type { CacheStore, LeaseRequest } from 'nest-redis-lock/backend';
import { memoryCacheStore } from '../../lib/backends/memory/memory-cache-store.js';
import { openRedisCacheStore } from '../../lib/backends/redis/cache/redis-cache-store.js';
import { eventually } from '../support/eventually.js';
import { RecordingCacheListener } from '../support/recording-cache-listener.js';
import { startRedisCluster } from '../support/servers/redis-cluster.js';
import { startRedisServer } from '../support/servers/redis-server.js';

/** Long enough (ms) that nothing which a test does not wait for ends by itself. */
export const LONG = 60_000;

export let store: CacheStore;

export let other: CacheStore;

export let key: string;

export let ours: RecordingCacheListener;

export let theirs: RecordingCacheListener;

export const set = (data: string | Buffer, of = key) => store.set({ key: of, data, ttl: LONG });

export const commit = (token: string, data = 'loaded', of = key) => store.commit({ key: of, token, data, ttl: LONG });

export const read = async (of = key) => (await other.read(of))?.toString() ?? null;

export const ask = (on: CacheStore, request: Partial<LeaseRequest> = {}) =>
  on.lease({ key, token: randomUUID(), lease: LONG, refresh: false, waits: true, ...request });

export const statusOf = async (on: CacheStore, request?: Partial<LeaseRequest>) => (await ask(on, request)).status;

export const raise = (token: string, ttl = LONG) => store.invalidate({ key, barrier: { token, ttl } });

export const toHear = (message: string) =>
  eventually(() => [ours, theirs].every(({ heard }) => heard.includes(message)));

/** The token of a load that has the lease. */
export async function begin(request: Partial<LeaseRequest> = {}): Promise<string> {
  const token = randomUUID();
  expect(await statusOf(store, { token, ...request })).toBe('leased');
  return token;
}

/** Puts bits under the key. */
export async function rebuild(positions: readonly number[], ttl = LONG): Promise<void> {
  const token = randomUUID();
  expect(await store.bits.beginRebuild({ key, token, lease: LONG, size: 1_000 })).toBe(true);
  expect(await store.bits.addToRebuild({ key, token, lease: LONG, positions })).toBe(true);
  expect(await store.bits.finishRebuild({ key, token, ttl })).toBe(true);
}

/** Starts every cache store, all at the same time: a Cluster takes two seconds. Returns how to get one by its name. */
export function startCacheStores(): (name: string) => OpenCacheStore {
  let opened: ReadonlyMap<string, OpenCacheStore>;
  beforeAll(async () => {
    opened = new Map(await Promise.all(cacheStores.map(async (kind) => [kind.name, await kind.open()] as const)));
  });
  afterAll(() => Promise.all([...opened.values()].map((each) => each.close())));
  return (name) => opened.get(name)!;
}

/** Those of all cases of a file. */
let startedOf: ReturnType<typeof startCacheStores> | undefined;

/** Runs the cases on every cache store. */
export function eachCacheStore(cases: (kind: (typeof cacheStores)[number]) => void): void {
  const openedOf = (startedOf ??= startCacheStores());
  describe.each(cacheStores)('the cache store $name', ({ name, open, ownsConnection }) => {
    beforeAll(async () => {
      ({ store, other } = openedOf(name));
      [ours, theirs] = [new RecordingCacheListener(), new RecordingCacheListener()];
      store.listen(ours);
      other.listen(theirs);
      await eventually(() => [ours, theirs].every(({ heard }) => heard.includes('connected')));
    });
    beforeEach(() => {
      key = randomUUID();
    });
    cases({ name, open, ownsConnection });
  });
}

export interface OpenCacheStore {
  readonly store: CacheStore;
  /** As another process sees the same values. */
  readonly other: CacheStore;
  close(): Promise<void>;
}

interface CacheStoreKind {
  readonly name: string;
  /** Whether what the store is on ends with the store. */
  readonly ownsConnection: boolean;
  open(): Promise<OpenCacheStore>;
}

const inMemory: CacheStoreKind = {
  name: 'memory',
  ownsConnection: true,
  open: async () => {
    const alone = memoryCacheStore();
    return { store: alone, other: alone, close: async () => alone.close() };
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
  const [first, second] = [one, another].map((connection) => openRedisCacheStore(connection, 'shop')) as [
    CacheStore,
    CacheStore,
  ];
  const close = async () => {
    first.close();
    second.close();
    await stop();
  };
  return { store: first, other: second, close };
}
