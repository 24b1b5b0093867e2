import { fileURLToPath } from 'node:url';
import base from '../../jest.config.js';

const { globalTeardown: _, ...common } = base;

/** Tests of the stores that `npm test` leaves out, because their servers are large, and of rarer clients of Redis. */
export default {
  ...common,
  rootDir: fileURLToPath(new URL('../..', import.meta.url)),
  testMatch: ['<rootDir>/test/backends/**/*.spec.ts'],
  testPathIgnorePatterns: [],
};
