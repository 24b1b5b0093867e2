export default {
  cacheDirectory: '<rootDir>/node_modules/.cache/jest',
  testEnvironment: 'node',
  testMatch: ['<rootDir>/test/**/*.spec.ts'],
  // Those have a configuration of their own: npm run test:pack.
  testPathIgnorePatterns: ['<rootDir>/test/pack/'],
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: {
    '^(\\.{1,2}/.*)\\.js$': '$1',
    '^nest-redis-lock$': '<rootDir>/lib/index.ts',
    '^nest-redis-lock/testing$': '<rootDir>/lib/testing/index.ts',
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
          transform: { legacyDecorator: true, decoratorMetadata: true },
        },
        module: { type: 'es6' },
      },
    ],
  },
  globalSetup: '<rootDir>/test/support/global-setup.mjs',
  testTimeout: 120_000,
  maxWorkers: '50%',
  // Modules of a file that has ended stay in memory where they are ES modules; a large heap stands still when it is collected.
  workerIdleMemoryLimit: '700MB',
};
