import { fileURLToPath } from 'node:url';
import base from '../../jest.config.js';

const { globalSetup: _, ...withoutServers } = base;

/** Tests that need neither a build nor a server. */
export default {
  ...withoutServers,
  rootDir: fileURLToPath(new URL('../..', import.meta.url)),
  testMatch: ['<rootDir>/test/unit/**/*.spec.ts'],
  maxWorkers: '100%',
};
