import { fileURLToPath } from 'node:url';
import base from '../../jest.config.js';

/** Nest and rxjs as they are installed: what is in the tarball requires them. */
const moduleNameMapper = Object.fromEntries(
  Object.entries(base.moduleNameMapper).filter(([, path]) => !path.includes('/node_modules/.cache/')),
);

/** Tests of the tarball, in the projects of those who install it. */
export default {
  ...base,
  moduleNameMapper,
  rootDir: fileURLToPath(new URL('../..', import.meta.url)),
  testMatch: ['<rootDir>/test/pack/*.spec.ts'],
  testPathIgnorePatterns: [],
  globalSetup: '<rootDir>/test/pack/global-setup.mjs',
  globalTeardown: '<rootDir>/test/pack/global-teardown.mjs',
  testTimeout: 240_000,
};
