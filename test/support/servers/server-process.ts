export * from '../../../sample-app/src/servers/server-process.js';
