import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { BOUNDS, Random, STOP } from '../chaos/settings.js';

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

interface ChaosReport {
  readonly seed: number;
  readonly cycles: number;
  /** In ms: until every name got on after a fault, at most. */
  readonly longestPause: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly tally: Readonly<Record<string, number>>;
  readonly findings: readonly string[];
}

const SEED = Number(process.env['CHAOS_SEED'] ?? 20_260);
const CYCLES = Number(process.env['CHAOS_CYCLES'] ?? 300);
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

const PLACES = 4;

interface Member {
  readonly child: Child;
  /** Whether it may end now. */
  dismissed: boolean;
}

/** The processes that use a primitive. One that was killed is replaced. */
class Crew {
  readonly places = PLACES;
  private readonly members: Member[] = [];
  private readonly proxies: FaultProxy[] = [];
  private recruits = 0;

  constructor(
    private readonly program: string,
    private readonly names: readonly string[],
    private readonly port: number,
    private readonly evidence: Evidence,
    private readonly seed: number,
  ) {}

  async gather(): Promise<void> {
    for (let place = 0; place < PLACES; place += 2) this.proxies.push(await FaultProxy.start(this.port));
    await Promise.all(Array.from({ length: PLACES }, (_, place) => this.recruit(place)));
  }

  async kill(place: number): Promise<void> {
    const member = this.at(place);
    member.dismissed = true;
    await member.child.kill();
    await this.recruit(place);
  }

  async stop(place: number, ms: number): Promise<void> {
    const { child } = this.at(place);
    child.signal('SIGSTOP');
    await sleep(ms);
    child.signal('SIGCONT');
  }

  /** Of this place or of its neighbour, because every other process reaches Redis directly. */
  proxyOf(place: number): FaultProxy {
    return this.proxies[Math.floor(place / 2)] as FaultProxy;
  }

  /** Has every call end, and every process by itself. */
  async dismiss(): Promise<void> {
    for (const member of this.members) {
      member.dismissed = true;
      member.child.signal('SIGTERM');
    }
    await Promise.all(
      this.members.map(async ({ child }) => {
        await child.says('closed', BOUNDS.process);
        const code = await Promise.race([child.exited, sleep(BOUNDS.process, 'not ended', { ref: false })]);
        if (code !== 0) await this.evidence.note(`a process: ${code}; it said: ${child.output}`);
      }),
    );
  }

  async disband(): Promise<void> {
    for (const member of this.members) member.dismissed = true;
    await Promise.all(this.members.map(({ child }) => child.kill()));
    await Promise.all(this.proxies.map((proxy) => proxy.stop()));
  }

  private at(place: number): Member {
    return this.members[place] as Member;
  }

  /** Every other process reaches Redis through a proxy. */
  private async recruit(place: number): Promise<void> {
    const id = ++this.recruits;
    const port = place % 2 === 0 ? this.proxyOf(place).port : this.port;
    const task = { id, seed: this.seed * 1_000_003 + id, names: this.names, evidence: this.evidence.address };
    const child = Child.start(`amid-faults/${this.program}`, [String(port), JSON.stringify(task)]);
    const member = { child, dismissed: false };
    this.members[place] = member;
    void child.exited.then(async (code) => {
      if (!member.dismissed) await this.evidence.note(`a process ended by itself, with ${code}: ${child.output}`);
    });
    await child.says('ready', BOUNDS.process);
  }
}

const FINDINGS_KEPT = 50;

/**
 * What every script of the evidence begins with. KEYS: 1 tally, 2 findings, 3 cycles of each name, 4 the hash of what
 * was seen of one name or key.
 *
 * `fenced()` is what a protected resource does: it refuses a holder with a token below the highest seen. ARGV: 1 the
 * token, 2 the holder. Only the holder itself can tell whether that was for a good reason: it was not if the holder
 * still trusted its hold afterwards.
 */
const COMMON = `
local tally, findings, cycles, key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local function note(what)
  if redis.call('HINCRBY', tally, 'findings', 1) <= ${FINDINGS_KEPT} then redis.call('RPUSH', findings, what) end
end
local function count(what) return redis.call('HINCRBY', tally, what, 1) end
local function cycled(name) return redis.call('HINCRBY', cycles, name, 1) end
local function seen(field) return redis.call('HGET', key, field) or '0' end
local function fenced()
  local token, highest = tonumber(ARGV[1]), tonumber(seen('token'))
  if token < highest then return false end
  if token == highest and seen('holder') ~= ARGV[2] then
    note(key .. ', token ' .. ARGV[1] .. ': two holders, ' .. seen('holder') .. ' and ' .. ARGV[2])
  end
  redis.call('HSET', key, 'token', ARGV[1], 'holder', ARGV[2])
  return true
end
`;

/** Scripts of all evidence. */
const SHARED = {
  /** ARGV: what. */
  note: 'note(ARGV[1])',
  /** ARGV: token, holder. Returns 1, or 0 if a later holder has begun. */
  look: 'return fenced() and 1 or 0',
};

/** Lua texts by their names; they may use the functions of `COMMON`. */
type EvidenceScripts = Readonly<Record<string, string>>;

/** What a process needs to give evidence. */
interface EvidenceAddress {
  readonly port: number;
  readonly scripts: Readonly<Record<string, string>>;
}

/** What processes have shown of their holds, on a Redis server of its own that no fault touches. */
class Evidence {
  private constructor(
    private readonly client: Redis,
    readonly address: EvidenceAddress,
  ) {}

  static async open(port: number, scripts: EvidenceScripts): Promise<Evidence> {
    const client = new Redis({ host: '127.0.0.1', port });
    const loaded: Record<string, string> = {};
    for (const [name, script] of Object.entries({ ...SHARED, ...scripts })) {
      loaded[name] = (await client.script('LOAD', COMMON + script)) as string;
    }
    return new Evidence(client, { port, scripts: loaded });
  }

  async note(what: string): Promise<void> {
    await this.client.evalsha(this.address.scripts['note'] as string, 3, 'tally', 'findings', 'cycles', what);
  }

  /** How many cycles of each name came to their end. */
  async cycles(names: readonly string[]): Promise<number[]> {
    return (await this.client.hmget('cycles', ...names)).map(Number);
  }

  /** Counts of findings, of errors by their code, and of what else the processes count. */
  async tally(): Promise<Record<string, number>> {
    const tally = await this.client.hgetall('tally');
    return Object.fromEntries(Object.entries(tally).map(([what, count]) => [what, Number(count)]));
  }

  /** What must not be, the first of it. */
  async findings(): Promise<string[]> {
    return this.client.lrange('findings', 0, -1);
  }

  async close(): Promise<void> {
    await this.client.quit();
  }
}
