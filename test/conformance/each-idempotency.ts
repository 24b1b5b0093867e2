import { randomUUID } from 'node:crypto';
import { IdempotencyService, type RedisLockModuleOptions } from 'nest-redis-lock';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { PRIMITIVE_WORLDS, type PrimitiveWorld } from './worlds/primitive-worlds.js';

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
  describe.each(Object.entries(PRIMITIVE_WORLDS))('IdempotencyService on %s', (_, start) => {
    let world: PrimitiveWorld;
    beforeAll(async () => {
      world = await start();
      startAnother = (options) => startLockApp({ ...world.options(), ...options });
      [one, two] = await Promise.all([startAnother({}), startAnother({})]);
      [service, others] = [one.app.get(IdempotencyService), two.app.get(IdempotencyService)];
    });
    beforeEach(() => {
      key = randomUUID();
    });
    afterAll(async () => {
      await one.close();
      await two.close();
      await world.stop();
    });
    cases();
  });
}
