export * from '../../../sample-app/servers/redis-server.js';
