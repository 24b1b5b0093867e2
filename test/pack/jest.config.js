import { fileURLToPath } from 'node:url';
import base from '../../jest.config.js';

/** Tests of the tarball, in the projects of those who install it. */
export default {
  ...base,
  rootDir: fileURLToPath(new URL('../..', import.meta.url)),
  testMatch: ['<rootDir>/test/pack/*.spec.ts'],
  testPathIgnorePatterns: [],
  globalSetup: '<rootDir>/test/pack/global-setup.mjs',
  globalTeardown: '<rootDir>/test/pack/global-teardown.mjs',
  testTimeout: 240_000,
};
