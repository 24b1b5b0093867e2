export * from '../../../sample-app/servers/etcd-server.js';
