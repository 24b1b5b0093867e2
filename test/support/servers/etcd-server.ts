export * from '../../../sample-app/src/servers/etcd-server.js';
