export * from '../../../sample-app/servers/postgres-server.js';
