import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { eventually } from '../../support/eventually.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { Random } from '../chaos/random.js';
import { BOUNDS, STOP } from '../chaos/settings.js';
import { Crew } from './crew.js';
import { Evidence, type EvidenceScripts } from './evidence.js';

/** A primitive, how processes use it, and what they show of that. */
export interface Primitive {
  /** Of test/support/programs/amid-faults: what each process runs. */
  readonly program: string;
  /** Every one of them must get on after each fault. */
  readonly names: readonly string[];
  readonly scripts: EvidenceScripts;
  /** The keys that stay until they expire, once all processes have ended; beside fences, labels and versions. */
  readonly stays?: RegExp;
  /** Looks at the primitive once all processes have ended. */
  readonly atLast?: (redis: string) => Promise<void>;
}

export interface ChaosReport {
  readonly seed: number;
  readonly cycles: number;
  /** In ms: until every name got on after a fault, at most. */
  readonly longestPause: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly tally: Readonly<Record<string, number>>;
  readonly findings: readonly string[];
}

const SEED = Number(process.env['CHAOS_SEED'] ?? 20_260);
const CYCLES = Number(process.env['CHAOS_CYCLES'] ?? 1_000);
/** For a spec, in ms. */
export const LIMIT = 150_000 + CYCLES * 60;

const FAULTS = ['kill', 'stop', 'stop', 'reset', 'request', 'reply', 'clientKill', 'pubsubKill', 'flush'] as const;
const LONGEST_PEACE = 300;
/** Until every name gets on: longer than any call waits. */
const PATIENCE = 60_000;

const WITHOUT_EXPIRY = `
local without = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then table.insert(without, key) end
end
return without
`;

/** Has processes use the primitive amid faults until CHAOS_CYCLES cycles were shown. Reports what must not be. */
export async function runAmidFaults({ program, names, scripts, stays, atLast }: Primitive): Promise<ChaosReport> {
  await using store = await startRedisServer();
  await using witness = await startRedisServer();
  const admin = new Redis(store.url);
  const evidence = await Evidence.open(witness.port, scripts);
  const crew = new Crew(program, names, store.port, evidence, SEED);
  const random = new Random(SEED);
  const done: Record<string, number> = {};
  let [planned, cycles, longestPause]: [(typeof FAULTS)[number][], number, number] = [[], 0, 0];
  try {
    await crew.gather();
    while (cycles < CYCLES || FAULTS.some((fault) => !done[fault])) {
      if (planned.length === 0) planned = random.shuffled(FAULTS);
      const fault = planned.pop() as (typeof FAULTS)[number];
      const [place, standstill] = [random.whole(0, crew.places - 1), random.whole(STOP.least, STOP.most)];
      await sleep(random.whole(0, LONGEST_PEACE));
      await suffer(fault, place, standstill, crew, admin);
      done[fault] = (done[fault] ?? 0) + 1;
      longestPause = Math.max(longestPause, await getOn(names, evidence));
      for (const key of (await admin.eval(WITHOUT_EXPIRY, 0)) as string[]) {
        await evidence.note(`without an expiry: ${key}`);
      }
      cycles = (await evidence.cycles(names)).reduce((sum, each) => sum + each, 0);
      if ((await evidence.findings()).length > 0) break;
    }
    // Who is stuck would not end.
    if ((await evidence.findings()).length === 0) {
      await crew.dismiss();
      await noteLeftovers(admin, evidence, stays);
      await atLast?.(store.url);
    }
    const [tally, findings] = [await evidence.tally(), await evidence.findings()];
    const report = { seed: SEED, cycles, longestPause, faults: done, tally, findings };
    if (process.env['CHAOS_CYCLES']) console.log(program, report);
    return report;
  } finally {
    await crew.disband();
    await evidence.close();
    admin.disconnect();
  }
}

/** Returns when it is over: nobody stands still, and who was killed is replaced. */
async function suffer(
  fault: (typeof FAULTS)[number],
  place: number,
  standstill: number,
  crew: Crew,
  admin: Redis,
): Promise<unknown> {
  switch (fault) {
    case 'kill':
      return crew.kill(place);
    case 'stop':
      return crew.stop(place, standstill);
    case 'reset':
      return crew.proxyOf(place).reset();
    case 'request':
    case 'reply':
      // Breaks the connection that sends the next script: before it was carried out, or after.
      return void crew.proxyOf(place).lose('evalsha', fault === 'reply');
    case 'flush':
      return admin.script('FLUSH');
    default:
      return admin.call('CLIENT', 'KILL', 'TYPE', fault === 'clientKill' ? 'normal' : 'pubsub', 'SKIPME', 'yes');
  }
}

/** Answers how long it took (ms) until a cycle of every name came to its end. */
async function getOn(names: readonly string[], evidence: Evidence): Promise<number> {
  const start = performance.now();
  const before = await evidence.cycles(names);
  let stuck = names;
  const noneStuck = async () => {
    const now = await evidence.cycles(names);
    stuck = names.filter((_, index) => now[index] === before[index]);
    return stuck.length === 0;
  };
  await eventually(noneStuck, { within: PATIENCE }).catch(() =>
    evidence.note(`no cycle of ${stuck.join(', ')} in ${PATIENCE} ms`),
  );
  return Math.round(performance.now() - start);
}

/** What is not meant to stay must be gone soon after the last call. */
async function noteLeftovers(admin: Redis, evidence: Evidence, stays: RegExp | undefined): Promise<void> {
  const left = async () =>
    (await admin.keys('*')).filter((key) => !/(:fence|:label|versions)$/.test(key) && !stays?.test(key));
  const none = async () => (await left()).length === 0;
  await eventually(none, { within: BOUNDS.cleanup, every: 50 }).catch(async () => {
    for (const key of await left()) await evidence.note(`left at the store: ${key}`);
  });
}
