// One schedule: some processes call the library while faults happen; then calm, the end, and the last checks.

import { runAs } from './clock.js';
import { planFaults } from './faults.js';
import type { Library, Services } from './library.js';
import type { LuaBridge } from './redis/lua.js';
import { Server } from './server.js';
import { SimulatedProcess } from './simulated-process.js';
import { drawSwarm, SWITCHES, type Kind, type Swarm, type Without } from './swarm.js';
import { Verdict, type Violation } from './verdict.js';
import { CachedReads } from './workloads/cached-reads.js';
import { CachedValues } from './workloads/cached-values.js';
import { IdempotentCalls } from './workloads/idempotent-calls.js';
import { Jobs } from './workloads/jobs.js';
import { Leaders } from './workloads/leaders.js';
import { Locks } from './workloads/locks.js';
import { Permits } from './workloads/permits.js';
import { Robberies } from './workloads/robberies.js';
import { sleep, type Workload } from './workloads/workload.js';
import { type Note, World } from './world.js';

/** How far a schedule goes. */
export interface Extent {
  /** By when (ms) its single faults have happened. */
  readonly faults: number;
  /** When (ms) it is calm again, unless there were all its holds before. */
  readonly calm: number;
  /** When (ms) its last calls begin. */
  readonly calls: number;
  /** After how many holds there are no further calls. */
  readonly holds: number;
}

/** Faults last about as long as a process may wait for another one whose lease has to end, several times over. */
const EXTENT: Extent = { faults: 6_000, calm: 12_000, calls: 400_000, holds: 50 };
/** How long (ms) its last calls may take. */
const CALM = 30_000;

export interface Application {
  readonly process: SimulatedProcess;
  readonly library: Library;
  readonly services: Services;
  /** Callers that have not ended. */
  calling: number;
}

export interface Outcome {
  readonly violations: readonly Violation[];
  readonly hash: string;
  readonly holds: number;
  readonly notes: readonly Note[];
  /** What can be left out of it. */
  readonly parts: readonly string[];
}

interface Environment {
  readonly library: Library;
  /** Every second process runs this one: another version. */
  readonly other?: Library | undefined;
  readonly lua: LuaBridge;
  readonly without?: Without;
  /** All callers call this. */
  readonly kind?: Kind | undefined;
  /** What it has in any case. */
  readonly swarm?: Partial<Swarm> | undefined;
  readonly onNote?: (note: Note) => void;
  /** Whether the outcome has notes and a hash. Default: yes. */
  readonly traced?: boolean;
}

/** Must run in a task: see `inTask`. */
export function runSchedule(seed: number, environment: Environment): Outcome {
  const schedule = new Schedule(seed, environment);
  const unhandled = (error: unknown) => schedule.verdict.violated('UNHANDLED', stackOf(error));
  process.on('unhandledRejection', unhandled);
  try {
    schedule.run();
  } catch (error) {
    schedule.verdict.violated('CRASH', stackOf(error));
  } finally {
    process.off('unhandledRejection', unhandled);
  }
  const { world, verdict, holds, parts } = schedule;
  return {
    violations: verdict.violations,
    get hash() {
      return world.hash;
    },
    holds,
    notes: world.notes,
    parts,
  };
}

const WORKLOADS = {
  locks: Locks,
  permits: Permits,
  leaders: Leaders,
  idempotency: IdempotentCalls,
  jobs: Jobs,
  cache: CachedValues,
  misses: CachedReads,
  robberies: Robberies,
} satisfies Record<Kind, new (schedule: Schedule) => Workload>;

export class Schedule {
  readonly world: World;
  readonly swarm: Swarm;
  readonly without: Without;
  readonly server: Server;
  readonly verdict: Verdict;
  readonly workloads: readonly Workload[];
  /** When the single faults end. */
  readonly until: number;
  readonly applications: Application[] = [];
  readonly parts: string[] = [];
  private readonly library: Library;
  private readonly other: Library;
  private readonly extent: Extent;

  constructor(
    seed: number,
    { library, other = library, lua, without = new Set(), kind, swarm, ...trace }: Environment,
  ) {
    this.world = new World(seed, trace);
    this.without = without;
    this.library = library;
    this.other = other;
    this.extent = library.extent ?? EXTENT;
    this.until = this.extent.faults;
    const drawn = drawSwarm(this.world.stream('swarm'), without, swarm);
    this.swarm = { ...drawn, ...library.swarm(drawn) };
    if (swarm) Object.assign(this.swarm, { faultless: false, forgets: false, deaf: false, unheard: false }, swarm);
    this.parts.push(...SWITCHES.filter((name) => this.swarm[name] !== 0));
    this.server = new Server(this.world, this.swarm, lua);
    this.verdict = new Verdict(this.world);
    this.server.onAskedAgain = ({ name }) =>
      this.verdict.violated('REFUSED', `${name} asks a store that has refused it`);
    if (kind) this.swarm.kinds = [kind];
    this.workloads = this.swarm.kinds.map((each) => new WORKLOADS[each](this));
  }

  get holds(): number {
    let sum = 0;
    for (const { entries } of this.workloads) sum += entries;
    return sum;
  }

  run(): void {
    const { world, swarm, workloads, server, verdict, applications } = this;
    world.note('schedule', () => JSON.stringify(swarm));
    for (let i = 1; i <= swarm.processes; i++) this.start(`P${i}`, i % 2 === 0 ? this.other : this.library);
    planFaults(this);
    world.every(500, () => verdict.checkKeys(server));
    world.run(this.until);
    world.run(this.extent.calm, () => this.holds >= this.extent.holds);
    this.calmDown();
    world.run(Math.max(world.now, this.extent.calls) + CALM, () =>
      applications.every(({ process, calling }) => process.dead || calling === 0),
    );
    for (const workload of workloads) workload.checkEnded?.();
    // Claims end, releases that were not confirmed are repeated, and what a late copy has queued is dropped.
    world.run(world.now + 10_000);
    for (const workload of workloads) workload.checkQuiet?.();
    const closing = this.close();
    world.run(world.now + 10_000);
    for (const name of closing)
      verdict.violated('CLOSING', `${name} has not closed: its shutdown waits for the body that asked`);
    world.run(world.now + 15_000);
    for (const workload of workloads) workload.checkClosed?.();
    verdict.checkClosed(
      applications.map(({ process }) => process),
      server,
    );
  }

  /** Starts an application with its callers. */
  start(name: string, library: Library): void {
    const { world, swarm, workloads, server } = this;
    const process = new SimulatedProcess(world, swarm, name);
    process.onTurn = () => {
      for (const workload of workloads) workload.afterTurn?.(process);
    };
    const services = runAs(process, () => library.start(process, server));
    const application: Application = { process, library, services, calling: 0 };
    this.applications.push(application);
    for (let i = 1; i <= swarm.callers; i++) {
      const label = `caller ${name}.${i}`;
      if (this.without.has(label)) continue;
      this.parts.push(label);
      application.calling += 1;
      const workload = workloads[(i - 1) % workloads.length] as Workload;
      runAs(process, () => {
        void this.callFrom(label, application, workload).then(() => (application.calling -= 1));
      });
    }
  }

  /** One caller: one call after the other. Each has random numbers of its own, so that it can be left out. */
  private async callFrom(label: string, application: Application, workload: Workload): Promise<void> {
    const { world, without, extent } = this;
    const random = world.stream(label);
    await sleep(random.between(1, 500));
    for (let i = 1; world.now < extent.calls && this.holds < extent.holds; i++) {
      const call = `${label} call ${i}`;
      if (!without.has(call)) {
        this.parts.push(call);
        await workload.call(application, world.stream(call));
      }
      await sleep(random.exponential(random.pick([1, 50, 600])));
    }
  }

  /** Closes the applications; returns the names of those that have not closed yet. */
  private close(): ReadonlySet<string> {
    const closing = new Set<string>();
    for (const { process, services } of this.applications) {
      if (process.dead) continue;
      const { name } = process;
      closing.add(name);
      process.observe(() => void this.closeOne(services, name).then(() => closing.delete(name)));
    }
    return closing;
  }

  /** From inside of a body, where the swarm says so: the shutdown does not wait for what waits for it. */
  private async closeOne({ locks, semaphores }: Services, name: string): Promise<void> {
    const close = () => locks.onApplicationShutdown();
    if (this.swarm.closesInside === 1) await locks.withLock(`end of ${name}`, close).catch(close);
    else if (this.swarm.closesInside === 2) {
      await semaphores.withPermit(`end of ${name}`, { permits: 1 }, close).catch(close);
    } else await close();
  }

  private calmDown(): void {
    Object.assign(this.swarm, { slow: 0, stall: 0, busy: 0, lostAnswers: 0, lateCopies: 0, lostMessages: 0 });
    this.server.giveMemory();
    this.server.letWrite();
    for (const { process } of this.applications) {
      process.network = { until: 0, silent: false };
      process.unheardUntil = 0;
    }
    this.world.note('schedule', 'no further faults');
  }
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
