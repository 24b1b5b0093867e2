import { fileURLToPath } from 'node:url';
import base from '../../jest.config.js';

const { globalSetup: _setup, globalTeardown: _teardown, ...withoutServers } = base;

/** Tests that need neither a build, a server nor a Nest application. */
export default {
  ...withoutServers,
  rootDir: fileURLToPath(new URL('../..', import.meta.url)),
  testMatch: ['<rootDir>/test/unit/**/*.spec.ts'],
  maxWorkers: '100%',
};
