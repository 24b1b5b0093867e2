import type { LockBackend } from 'nest-redis-lock';

/** A store, and where it is: one URL, or several with commas. */
export interface LockStore {
  readonly name: LockBackendName;
  readonly url: string;
}

type Opener = (url: string, lease: number) => Promise<LockBackend>;

/**
 * The stores in which the shop can keep its locks. Each has a subpath of its own, so that a shop needs only the client
 * library of its store. Stores that keep locks for a session get the lease, in milliseconds, as the length of the
 * session.
 */
const OPENERS = {
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
} satisfies Record<string, Opener>;

export type LockBackendName = keyof typeof OPENERS;
export const LOCK_BACKENDS = Object.keys(OPENERS) as LockBackendName[];

export function openLockBackend({ name, url }: LockStore, lease: number): Promise<LockBackend> {
  const open: Opener = OPENERS[name];
  return open(url, lease);
}

function wholeSeconds(milliseconds: number): number {
  return Math.ceil(milliseconds / 1_000) * 1_000;
}
