import type { LockBackend } from 'nest-redis-lock';

/** The stores in which the shop can keep its locks. */
export const LOCK_BACKENDS = [
  'redis',
  'redlock',
  'postgres',
  'postgres-advisory',
  'mysql',
  'mysql-get-lock',
  'etcd',
  'zookeeper',
] as const;

export type LockBackendName = (typeof LOCK_BACKENDS)[number];

/** A store, and where it is: one URL, or several with commas. */
export interface LockStore {
  readonly name: LockBackendName;
  readonly url: string;
}

/**
 * Each has a subpath of its own, so that a shop needs only the client library of its store. Stores that keep locks for
 * a session get the lease, in milliseconds, as the length of the session.
 */
const OPENERS: Readonly<Record<LockBackendName, (url: string, lease: number) => Promise<LockBackend>>> = {
  redis: async (url) => (await import('nest-redis-lock')).redis(url),
  redlock: async (urls) => (await import('nest-redis-lock/redlock')).redlock(urls.split(',')),
  postgres: async (url) => (await import('nest-redis-lock/postgres')).leaseTable(url),
  'postgres-advisory': async (url) => (await import('nest-redis-lock/postgres')).advisory(url),
  mysql: async (url) => (await import('nest-redis-lock/mysql')).leaseTable(url),
  'mysql-get-lock': async (url) => (await import('nest-redis-lock/mysql')).getLock(url),
  etcd: async (urls, lease) =>
    (await import('nest-redis-lock/etcd')).etcd({ endpoints: urls.split(','), ttl: wholeSeconds(lease) }),
  zookeeper: async (servers, lease) =>
    (await import('nest-redis-lock/zookeeper')).zookeeper({ servers, sessionTimeout: Math.max(1_000, lease) }),
};

export function openLockBackend({ name, url }: LockStore, lease: number): Promise<LockBackend> {
  return OPENERS[name](url, lease);
}

function wholeSeconds(milliseconds: number): number {
  return Math.ceil(milliseconds / 1_000) * 1_000;
}
