export * from '../../../sample-app/src/servers/mariadb-server.js';
