import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from '../../support/child.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { Random } from '../chaos/random.js';
import { BOUNDS, STOP } from '../chaos/settings.js';
import { startRedisStore } from '../chaos/stores/redis-store.js';
import type { Store } from '../chaos/stores/store.js';
import { RunEvidence } from './run-evidence.js';

export interface DuplicatesReport {
  readonly seed: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly tally: Readonly<Record<string, number>>;
  readonly findings: readonly string[];
}

const NAMES = ['a', 'b', 'c'];
const PLACES = 4;
const FAULTS = ['kill', 'kill', 'stop', 'stop', 'stop', 'drop', 'drop', 'flush', 'clientKill', 'pubsubKill'];
const LONGEST_PEACE = 300;

/** Has processes call the same idempotency keys amid faults until `answers` were given. Reports what must not be. */
export async function runDuplicates(seed: number, answers: number): Promise<DuplicatesReport> {
  const random = new Random(seed);
  await using store = await startRedisStore();
  await using witness = await startRedisServer();
  const evidence = await RunEvidence.open(witness.port);
  const crew = new Crew(store, evidence, seed);
  const faults: Record<string, number> = {};
  let planned: string[] = [];
  try {
    await crew.gather();
    for (let given = 0; given < answers || FAULTS.some((fault) => !faults[fault]);) {
      if (planned.length === 0) planned = random.shuffled(FAULTS);
      const fault = planned.pop() as string;
      await sleep(random.whole(0, LONGEST_PEACE));
      await crew.suffer(fault, random.whole(0, PLACES - 1), random.whole(STOP.least, STOP.most));
      faults[fault] = (faults[fault] ?? 0) + 1;
      await noteStuck(evidence);
      const tally = await evidence.tally();
      given = tally['answers'] ?? 0;
      if (tally['findings']) break;
    }
    await crew.drain();
    await noteLeftovers(store, evidence);
    return { seed, faults, tally: await evidence.tally(), findings: await evidence.findings() };
  } finally {
    await crew.disband();
    await evidence.close();
  }
}

/** The processes that call. One that was killed is replaced. */
class Crew {
  private readonly members: Child[] = [];
  private readonly proxies: FaultProxy[] = [];
  private recruits = 0;

  constructor(
    private readonly store: Store,
    private readonly evidence: RunEvidence,
    private readonly seed: number,
  ) {}

  async gather(): Promise<void> {
    const [port] = this.store.ports as [number];
    for (let place = 0; place < PLACES; place += 2) this.proxies.push(await FaultProxy.start(port));
    // One after the other, because each has a limit for its start.
    for (let place = 0; place < PLACES; place++) await this.recruit(place);
  }

  /** Returns when it is over: nobody stands still, and who was killed is replaced. */
  async suffer(fault: string, place: number, standstill: number): Promise<void> {
    const member = this.members[place] as Child;
    if (fault === 'kill') {
      await member.kill();
      await this.recruit(place);
    } else if (fault === 'stop') {
      member.signal('SIGSTOP');
      await sleep(standstill);
      member.signal('SIGCONT');
    } else if (fault === 'drop') {
      this.proxies[place % this.proxies.length]?.reset();
    } else {
      await this.store.faults[fault]?.();
    }
  }

  /** Has every call end, and every process by itself. */
  async drain(): Promise<void> {
    for (const child of this.members) child.signal('SIGTERM');
    await Promise.all(
      this.members.map(async (child) => {
        await child.says('drained', BOUNDS.process);
        const code = await Promise.race([child.exited, sleep(BOUNDS.process, 'not ended', { ref: false })]);
        if (code !== 0) await this.evidence.note(`a process: ${code}; it said: ${child.output}`);
      }),
    );
  }

  async disband(): Promise<void> {
    await Promise.all(this.members.map((child) => child.kill()));
    await Promise.all(this.proxies.map((proxy) => proxy.stop()));
  }

  /** Every other process reaches Redis through a proxy. */
  private async recruit(place: number): Promise<void> {
    const port = place % 2 === 0 ? this.proxies[place / 2]?.port : this.store.ports[0];
    this.recruits += 1;
    const task = {
      seed: this.seed * 1_000_003 + this.recruits,
      names: NAMES,
      lease: this.store.lease,
      evidence: this.evidence.address,
    };
    const child = Child.start('duplicate-caller.mjs', [String(port), JSON.stringify(task)]);
    this.members[place] = child;
    await child.says('ready', BOUNDS.process);
  }
}

/** Every name must get on with a key: callers get an answer for it. */
async function noteStuck(evidence: RunEvidence): Promise<void> {
  const start = performance.now();
  const before = await evidence.numbers(NAMES);
  const stuck = async () => {
    const after = await evidence.numbers(NAMES);
    return NAMES.filter((_, index) => after[index] === before[index]);
  };
  for (let names = await stuck(); names.length > 0; names = await stuck()) {
    const waited = Math.round(performance.now() - start);
    if (waited > BOUNDS.wait) return evidence.note(`no answers for ${names.join(', ')} for ${waited} ms`);
    await sleep(5);
  }
}

/** Locks must be gone soon after the last call, and all that stays must expire. */
async function noteLeftovers(store: Store, evidence: RunEvidence): Promise<void> {
  const locks = async () => (await store.leftovers()).filter((key) => !key.endsWith(':result'));
  const until = performance.now() + BOUNDS.cleanup;
  while ((await locks()).length > 0 && performance.now() < until) await sleep(20);
  for (const key of await locks()) await evidence.note(`left at the store: ${key}`);
  for (const key of await store.endless()) await evidence.note(`without an expiry: ${key}`);
}
