import { startEtcdStore } from './etcd-store.js';
import { startGetLockStore, startMysqlStore } from './mysql-stores.js';
import { startAdvisoryStore, startPostgresStore } from './postgres-stores.js';
import { startRedisStore } from './redis-store.js';
import { startRedlockStore } from './redlock-store.js';
import type { Backend, Store } from './store.js';
import { startZooKeeperStore } from './zookeeper-store.js';

const STARTS: Readonly<Record<Backend, () => Promise<Store>>> = {
  redis: startRedisStore,
  redlock: startRedlockStore,
  postgres: startPostgresStore,
  'postgres-advisory': startAdvisoryStore,
  mysql: startMysqlStore,
  'mysql-get-lock': startGetLockStore,
  etcd: startEtcdStore,
  zookeeper: startZooKeeperStore,
};

export function startStore(backend: Backend): Promise<Store> {
  return STARTS[backend]();
}
