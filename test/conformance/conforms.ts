import { lockBackendCases, type LockBackendWorld, type StoreFault } from 'nest-redis-lock/testing';

/** A store that runs, for one test file. */
export interface RunningWorld extends LockBackendWorld {
  stop(): Promise<void>;
}

/** How a store is started, and which faults its world can make. */
export interface WorldKind {
  readonly faults: readonly StoreFault[];
  /** Whether one case at a time is all that the store takes on a busy machine. */
  readonly oneByOne?: true;
  start(): Promise<RunningWorld>;
}

/**
 * Runs the cases of every lock backend on one: those that make faults one by one, and the others side by side, with
 * names and backends of their own. Those that need a fault which the world cannot make show as skipped.
 */
export function conforms(name: string, kind: WorldKind): void {
  describe(`the lock backend ${name}`, () => {
    let world: RunningWorld;
    beforeAll(async () => {
      world = await kind.start();
    });
    afterAll(() => world.stop());
    for (const { name: sentence, needs, missing, run } of lockBackendCases(whenStarted(() => world, kind.faults))) {
      if (needs.length === 0 && !kind.oneByOne) it.concurrent(sentence, run);
      else if (missing.length === 0) it(sentence, run);
      else it.skip(`${sentence} (this world cannot ${missing.join(', ')})`, run);
    }
  });
}

/** The cases are named before the store runs. */
function whenStarted(world: () => RunningWorld, faults: readonly StoreFault[]): LockBackendWorld {
  const faultOf = (fault: StoreFault) => (world().faults ?? {})[fault] as (...args: unknown[]) => Promise<never>;
  const later = faults.map((fault) => [fault, (...args: unknown[]) => faultOf(fault)(...args)] as const);
  return { open: () => world().open(), faults: Object.fromEntries(later) };
}
