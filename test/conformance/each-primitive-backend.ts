import { startLockApp, type LockApp } from '../support/lock-app.js';
import { PRIMITIVE_WORLDS, type PrimitiveWorld } from './worlds/primitive-worlds.js';

/** Two applications that share a store. */
export let apps: readonly [LockApp, LockApp];

/** Runs the cases on each store that keeps primitives. `subject` names the primitive. */
export function eachPrimitiveBackend(subject: string, cases: () => void): void {
  describe.each(Object.entries(PRIMITIVE_WORLDS))(`${subject} on %s`, (_, start) => {
    let world: PrimitiveWorld;
    beforeAll(async () => {
      world = await start();
      apps = await Promise.all([startLockApp(world.options()), startLockApp(world.options())]);
    });
    afterAll(async () => {
      for (const app of apps) await app.close();
      await world.stop();
    });
    cases();
  });
}
