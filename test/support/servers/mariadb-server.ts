export * from '../../../sample-app/servers/mariadb-server.js';
