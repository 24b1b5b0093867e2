import { memory, type LockService, type RedisLockModuleOptions } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { type LockApp, patient, startLockApp } from '../support/lock-app.js';

let server: RedisServer;

export let one: LockApp;

export let two: LockApp;

export let locks: LockService;

export let others: LockService;

/** Those of an application that shares the locks of `one` and `two`. */
export let options: () => RedisLockModuleOptions;

/** Runs the cases on every lock backend. */
export function eachLockBackend(cases: () => void): void {
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());
  describe.each(['redis', 'memory'] as const)('LockService on %s', (kind) => {
    beforeAll(async () => {
      const shared = memory();
      options = () => patient(kind === 'redis' ? { redis: server.url } : { backend: shared });
      [one, two] = await Promise.all([startLockApp(options()), startLockApp(options())]);
      [locks, others] = [one.locks, two.locks];
    });
    afterAll(async () => {
      await one.close();
      await two.close();
    });
    cases();
  });
}
