export { zookeeper } from './zookeeper-lock-backend.js';
export type { ZooKeeperCredentials, ZooKeeperOptions } from './zookeeper-options.js';
