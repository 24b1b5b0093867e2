import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { lockBackendCases, type LockBackendWorld, type StoreFault } from 'nest-redis-lock/testing';

/** A store that runs, for one test file. */
export interface RunningWorld extends LockBackendWorld {
  stop(): Promise<void>;
}

/** How a store is started, and which faults its world can make. */
export interface WorldKind {
  readonly faults: readonly StoreFault[];
  /** The roles that its backend leaves out. */
  readonly without?: LockBackendWorld['without'];
  /** Whether one case at a time is all that the store takes on a busy machine. */
  readonly oneByOne?: true;
  start(): Promise<RunningWorld>;
}

/** The roles of which a backend has none whose names are locks of a session. */
export const SESSIONS_LEAVE_OUT: WorldKind['without'] = [
  'acquireSeveral',
  'downgrade',
  'forceRelease',
  'keep',
  'label',
  'list',
  'queue',
  'ttl',
];

/**
 * Runs the cases of every lock backend on one: those that make faults one by one, and the others side by side, with
 * names and backends of their own. Those that need a fault or a role which the world lacks show as skipped.
 */
export function conforms(name: string, kind: WorldKind): void {
  describe(`the lock backend ${name}`, () => {
    let world: RunningWorld;
    beforeAll(async () => {
      world = await kind.start();
    });
    afterAll(() => world.stop());
    for (const { name: sentence, needs, missing, run } of lockBackendCases(whenStarted(() => world, kind))) {
      if (missing.length > 0) it.skip(`${sentence} (missing: ${missing.join(', ')})`, run);
      else if (needs.length === 0 && !kind.oneByOne) it.concurrent(sentence, run);
      else it(sentence, run);
    }
  });
}

/** The cases are named before the store runs. */
function whenStarted(world: () => RunningWorld, { faults, without = [] }: WorldKind): LockBackendWorld {
  const faultOf = (fault: StoreFault) => (world().faults ?? {})[fault] as (...args: unknown[]) => Promise<never>;
  const later = faults.map((fault) => [fault, (...args: unknown[]) => faultOf(fault)(...args)] as const);
  return { open: () => world().open(), faults: Object.fromEntries(later), without };
}

/** Starts another process, with a backend of that kind at the ports. */
export function otherProcess(kind: string, ...ports: readonly number[]): ChildProcess {
  const program = fileURLToPath(new URL('../support/programs/answers-cases.mjs', import.meta.url));
  return fork(program, [kind, ...ports.map(String)], { execArgv: [] });
}
