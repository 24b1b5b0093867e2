import { randomUUID } from 'node:crypto';
import { IdempotencyService, memory, type RedisLockModuleOptions } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';

export let one: LockApp;

export let two: LockApp;

/** Of the two applications, which share a store. */
export let service: IdempotencyService;

export let others: IdempotencyService;

/** Starts a further application on the store. */
export let startAnother: (options: RedisLockModuleOptions) => Promise<LockApp>;

/** A new one for each test. */
export let key: string;

/** Runs the cases on every store that keeps results. */
export function eachIdempotency(cases: () => void): void {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());
  describe.each(['redis', 'memory'] as const)('IdempotencyService on %s', (kind) => {
    beforeAll(async () => {
      const shared = memory();
      const store = kind === 'redis' ? { redis: server.url } : { backend: shared };
      startAnother = (options) => startLockApp({ ...store, ...options });
      [one, two] = await Promise.all([startAnother({}), startAnother({})]);
      [service, others] = [one.app.get(IdempotencyService), two.app.get(IdempotencyService)];
    });
    beforeEach(() => {
      key = randomUUID();
    });
    afterAll(async () => {
      await one.close();
      await two.close();
    });
    cases();
  });
}
