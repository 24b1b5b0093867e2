export * from '../../../sample-app/src/servers/zookeeper-server.js';
