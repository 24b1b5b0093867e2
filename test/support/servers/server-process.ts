export * from '../../../sample-app/servers/server-process.js';
