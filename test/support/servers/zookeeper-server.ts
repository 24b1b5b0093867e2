export * from '../../../sample-app/servers/zookeeper-server.js';
