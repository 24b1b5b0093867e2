import { fileURLToPath } from 'node:url';
import base from '../../jest.config.js';

/** Tests in a real browser, which `npm test` leaves out because a browser is large. */
export default {
  ...base,
  rootDir: fileURLToPath(new URL('../..', import.meta.url)),
  testMatch: ['<rootDir>/test/browser/**/*.spec.ts'],
  testPathIgnorePatterns: [],
};
