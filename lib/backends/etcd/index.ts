export { etcd } from './etcd-lock-backend.js';
export type { EtcdOptions } from './etcd-options.js';
export type { EtcdTls } from './etcd-endpoint.js';
