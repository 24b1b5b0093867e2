import { fileURLToPath } from 'node:url';
import base from '../../jest.config.js';

const { globalSetup: _setup, globalTeardown: _teardown, ...withoutServers } = base;

/** Tests of the built site in a real browser: npm run site:check. */
export default {
  ...withoutServers,
  rootDir: fileURLToPath(new URL('../..', import.meta.url)),
  testMatch: ['<rootDir>/test/site/**/*.spec.ts'],
  testPathIgnorePatterns: [],
};
