export * from '../../../sample-app/src/servers/postgres-server.js';
