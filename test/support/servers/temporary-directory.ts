export * from '../../../sample-app/src/servers/temporary-directory.js';
