// One schedule: some processes call the library while faults happen; then calm, the end, and the last checks.

import { runAs } from './clock.js';
import { planFaults } from './faults.js';
import type { Library, Services } from './library.js';
import { LockRules } from './lock-rules.js';
import { callLocks } from './lock-calls.js';
import type { LuaBridge } from './redis/lua.js';
import { Server } from './server.js';
import { SimulatedProcess } from './simulated-process.js';
import { drawSwarm, SWITCHES, type Swarm, type Without } from './swarm.js';
import { Verdict, type Violation } from './verdict.js';
import { type Note, World } from './world.js';

/** For how long (ms) a schedule has faults and calls, and how long it may then take to its end. */
const FAULTS = 12_000;
const CALM = 30_000;

export interface Application {
  readonly process: SimulatedProcess;
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
  readonly lua: LuaBridge;
  readonly without?: Without;
  readonly onNote?: (note: Note) => void;
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
  const { world, verdict, rules, parts } = schedule;
  return { violations: verdict.violations, hash: world.hash, holds: rules.entries, notes: world.notes, parts };
}

export class Schedule {
  readonly world: World;
  readonly swarm: Swarm;
  readonly without: Without;
  readonly server: Server;
  readonly verdict: Verdict;
  readonly rules: LockRules;
  readonly applications: Application[] = [];
  readonly parts: string[] = [];
  private readonly library: Library;

  constructor(seed: number, { library, lua, without = new Set(), onNote }: Environment) {
    this.world = new World(seed, onNote);
    this.without = without;
    this.library = library;
    this.swarm = drawSwarm(this.world.stream('swarm'), without);
    this.parts.push(...SWITCHES.filter((name) => this.swarm[name] !== 0));
    this.server = new Server(this.world, this.swarm, lua);
    this.verdict = new Verdict(this.world);
    this.rules = new LockRules(this.world, this.server, this.verdict);
  }

  run(): void {
    const { world, swarm, rules, server, verdict } = this;
    world.note('schedule', JSON.stringify(swarm));
    for (let i = 1; i <= swarm.processes; i++) this.start(`P${i}`);
    planFaults(this, FAULTS);
    world.every(500, () => {
      rules.checkCalls(swarm.commandTimeout);
      verdict.checkKeys(server);
    });
    if (swarm.faultless) world.every(20, () => (world.now > 1_500 && rules.checkUsed(swarm.names), world.now < FAULTS));
    world.run(FAULTS);
    this.calmDown();
    world.run(FAULTS + CALM, () => this.applications.every(({ process, calling }) => process.dead || calling === 0));
    rules.checkEnded();
    // Claims end, and releases that were not confirmed are repeated.
    world.run(world.now + 8_000);
    rules.checkNothingLives();
    for (const { process, services } of this.applications) {
      if (!process.dead) process.observe(() => void services.locks.onApplicationShutdown());
    }
    world.run(world.now + 25_000);
    rules.checkNothingLeft();
    verdict.checkClosed(
      this.applications.map(({ process }) => process),
      server,
    );
  }

  /** Starts an application with its callers. */
  start(name: string): void {
    const { world, swarm, rules, server } = this;
    const process = new SimulatedProcess(world, swarm, name);
    process.onTurn = () => rules.afterTurn(process, swarm.eager > 0);
    const services = runAs(process, () => this.library.start(process, server));
    const application: Application = { process, services, calling: 0 };
    this.applications.push(application);
    for (let i = 1; i <= swarm.callers; i++) {
      const label = `caller ${name}.${i}`;
      const random = world.stream(label);
      if (this.without.has(label)) continue;
      this.parts.push(label);
      application.calling += 1;
      runAs(process, () => {
        void callLocks(this, application, random, FAULTS - 2_000).then(() => (application.calling -= 1));
      });
    }
  }

  private calmDown(): void {
    Object.assign(this.swarm, { slow: 0, stall: 0, busy: 0, lostAnswers: 0 });
    for (const { process } of this.applications) process.network = { until: 0, silent: false };
    this.world.note('schedule', 'no further faults');
  }
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
