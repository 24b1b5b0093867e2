import { availableParallelism, totalmem } from 'node:os';
import { bundledNest } from './test/support/nest-bundle.mjs';

export default {
  cacheDirectory: '<rootDir>/node_modules/.cache/jest',
  testEnvironment: 'node',
  testMatch: ['<rootDir>/test/**/*.spec.ts'],
  // Those have configurations of their own: npm run test:pack, test:backends, test:browser and site:check.
  testPathIgnorePatterns: ['pack', 'backends', 'browser', 'site'].map((folder) => `<rootDir>/test/${folder}/`),
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: {
    ...(await bundledNest()),
    '^(\\.{1,2}/.*)\\.js$': '$1',
    '^nest-redis-lock$': '<rootDir>/lib/index.ts',
    '^nest-redis-lock/backend$': '<rootDir>/lib/contracts/index.ts',
    '^nest-redis-lock/events$': '<rootDir>/lib/observability/index.ts',
    '^nest-redis-lock/testing$': '<rootDir>/lib/testing/index.ts',
    '^nest-redis-lock/admin$': '<rootDir>/lib/admin/index.ts',
    '^nest-redis-lock/(prometheus|opentelemetry|terminus)$': '<rootDir>/lib/observability/$1/index.ts',
    '^nest-redis-lock/(memory|redlock|postgres|mysql|etcd|zookeeper)$': '<rootDir>/lib/backends/$1/index.ts',
  },
  modulePathIgnorePatterns: ['<rootDir>/dist', '<rootDir>/dist-sample'],
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        jsc: {
          target: 'es2022',
          keepClassNames: true,
          parser: { syntax: 'typescript', decorators: true },
          transform: { legacyDecorator: true, decoratorMetadata: true, useDefineForClassFields: false },
        },
        module: { type: 'es6' },
      },
    ],
  },
  globalSetup: '<rootDir>/test/support/global-setup.mjs',
  globalTeardown: '<rootDir>/test/support/global-teardown.mjs',
  testTimeout: 240_000,
  // Most specs wait for servers and leases: a core that runs two at a time is idle for a fifth of it. Each may need a
  // gigabyte with its servers.
  maxWorkers: Math.max(2, Math.floor(Math.min(2.5 * availableParallelism(), totalmem() / 1.5e9))),
  testSequencer: '<rootDir>/test/support/long-first.mjs',
  // Modules of a file that has ended stay in memory where they are ES modules; a large heap stands still when it is
  // collected.
  workerIdleMemoryLimit: '700MB',
};
