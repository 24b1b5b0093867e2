export * from '../../../sample-app/src/servers/redis-server.js';
