// Many schedules, in as many threads as there are cores.

import { availableParallelism } from 'node:os';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { inTask, installClock } from './clock.js';
import { loadLibrary } from './library.js';
import { createLua } from './redis/lua.js';
import { runSchedule } from './schedule.js';
import type { StoreName } from './stores/index.js';
import type { Kind, Swarm } from './swarm.js';
import type { Violation } from './verdict.js';

export interface SeedResult {
  readonly seed: number;
  readonly holds: number;
  readonly violations: readonly Violation[];
  /** Whether it gave the same trace a second time; `true` where it ran only once. */
  readonly repeatable: boolean;
}

interface Seeds {
  readonly first: number;
  readonly count: number;
  /** The folder of the compiled library. */
  readonly library: string;
  /** That of another version, which every second process runs. */
  readonly other?: string | undefined;
  readonly store?: StoreName;
  /** All callers call this. */
  readonly kind?: Kind | undefined;
  /** Parts that all schedules leave out. */
  readonly without?: readonly string[];
  /** What all schedules have. */
  readonly swarm?: Partial<Swarm> | undefined;
  /** Runs each schedule twice. */
  readonly twice?: boolean;
  readonly threads?: number;
}

/** A thread runs every `threads`th seed, from `first` on. */
type Share = Required<Omit<Seeds, Optional>> & Pick<Seeds, Optional>;
type Optional = 'kind' | 'swarm' | 'other';

/** What a schedule allocates dies with it: a larger young generation (MB) copies little of it. */
const ROOM = { maxYoungGenerationSizeMb: 64 };

/** How many results a thread tells at once, unless a schedule violated something. */
const MESSAGE = 32;

if (!isMainThread) await runShare(workerData as Share);

/** Calls `onResult` for each schedule, until it returns `false`. */
export async function runSeeds(seeds: Seeds, onResult: (result: SeedResult) => boolean | void): Promise<void> {
  const threads = Math.min(seeds.threads ?? availableParallelism(), seeds.count);
  const workers = Array.from({ length: threads }, (_, i) => {
    const share: Share = {
      twice: false,
      without: [],
      store: 'redis',
      ...seeds,
      first: seeds.first + i,
      count: seeds.count - i,
      threads,
    };
    return new Worker(new URL(import.meta.url), { workerData: share, resourceLimits: ROOM });
  });
  const end = () => Promise.all(workers.map((worker) => worker.terminate()));
  let over = false;
  await Promise.all(
    workers.map(
      (worker) =>
        new Promise<void>((resolve, reject) => {
          worker.on('message', (results: readonly SeedResult[]) => {
            over ||= results.some((result) => onResult(result) === false);
            if (over) void end();
          });
          worker.on('error', reject).on('exit', () => resolve());
        }),
    ),
  );
}

async function runShare(share: Share): Promise<void> {
  const { first, count, store, kind, swarm, twice, threads } = share;
  const without = new Set(share.without);

  // No schedule depends on where an error was made or a lock taken, and an eighth of their time went there.
  Error.stackTraceLimit = 0;
  process.env.NODE_ENV = 'production';
  installClock();
  const library = await loadLibrary(share.library, store);
  const other = share.other === undefined ? undefined : await loadLibrary(share.other, store);
  const lua = await createLua();
  let results: SeedResult[] = [];
  for (let seed = first; seed < first + count; seed += threads) {
    const run = () => inTask(() => runSchedule(seed, { library, other, lua, without, kind, swarm, traced: twice }));
    const outcome = await run();
    const { holds, violations } = outcome;
    const repeatable = !twice || (await run()).hash === outcome.hash;
    results.push({ seed, holds, violations, repeatable });
    // A message costs as much as a hold.
    if (results.length < MESSAGE && violations.length === 0 && seed + threads < first + count) continue;
    parentPort?.postMessage(results, []);
    results = [];
  }
  process.exit();
}
