export * from '../../../sample-app/servers/temporary-directory.js';
