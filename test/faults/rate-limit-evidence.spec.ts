import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { RateLimitOptions } from 'nest-redis-lock';
import { Child } from '../support/child.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

/** A call that was allowed, in µs of the monotonic clock, which all processes of a machine share. */
interface Call {
  readonly asked: number;
  readonly answered: number;
}

interface Counts {
  readonly allowed: number;
  readonly denied: number;
  readonly failed: number;
}

interface CrewReport extends Counts {
  /** Calls that the evidence knows of. */
  readonly noted: number;
  /** The most calls beyond what the limit allows in any time span; at most 0 where it held. */
  readonly excess: number;
  readonly mischief: Readonly<Record<string, number>>;
}

interface CrewWork {
  readonly processes: number;
  readonly keys: number;
  /** In ms. */
  readonly duration: number;
  /** One unit comes back in this time (µs). */
  readonly interval: number;
  /** Units that may be allowed at once. */
  readonly burst: number;
  readonly options: RateLimitOptions;
}

/**
 * Has processes take units of a few keys, kills and freezes them, cuts their connections and flushes the scripts, and
 * counts what was allowed on another Redis.
 */
async function runLimitedCrew(work: CrewWork): Promise<CrewReport> {
  await using limits = await startRedisServer();
  await using evidence = await startRedisServer();
  const notes = new Redis(evidence.url);
  const mischief = new LimitedCrew(limits, evidence, work);
  try {
    await mischief.start();
    const counts = await mischief.runFor(work.duration);
    const calls = await Promise.all(Array.from({ length: work.keys }, (_, key) => callsOf(notes, `key:${key}`)));
    const excess = Math.max(...calls.map((each) => excessOf(each, work)));
    const noted = calls.reduce((total, each) => total + each.length, 0);
    return { ...counts, noted, excess, mischief: mischief.done };
  } finally {
    notes.disconnect();
    await mischief.end();
  }
}

class LimitedCrew {
  readonly done = { kills: 0, freezes: 0, cuts: 0, flushes: 0 };
  private readonly client: Redis;
  private readonly crew: Child[] = [];
  private readonly argument: string;

  constructor(
    private readonly limits: RedisServer,
    evidence: RedisServer,
    private readonly work: CrewWork,
  ) {
    this.client = new Redis(limits.url).on('error', () => {});
    this.argument = JSON.stringify({ evidence: evidence.port, keys: work.keys, options: work.options });
  }

  async start(): Promise<void> {
    for (let index = 0; index < this.work.processes; index++) this.crew.push(this.member());
    await Promise.all(this.crew.map((child) => child.says('ready')));
  }

  async runFor(duration: number): Promise<Counts> {
    const end = performance.now() + duration;
    for (let round = 0; performance.now() < end || round < 4; round++) {
      await sleep(200);
      await this.disturb(round);
    }
    for (const child of this.crew) child.signal('SIGTERM');
    const counts = await Promise.all(this.crew.map((child) => child.says<Counts>('counts')));
    const sum = (name: keyof Counts) => counts.reduce((total, each) => total + each[name], 0);
    return { allowed: sum('allowed'), denied: sum('denied'), failed: sum('failed') };
  }

  async end(): Promise<void> {
    this.client.disconnect();
    await Promise.all(this.crew.map((child) => child.kill()));
  }

  private member(): Child {
    return Child.start('rate-limited.mjs', [String(this.limits.port), this.argument]);
  }

  /** In turns: freezes a process and the server, cuts connections and flushes scripts; every fourth time also kills. */
  private async disturb(round: number): Promise<void> {
    const index = round % this.crew.length;
    const child = this.crew[index] as Child;
    switch (round % 4) {
      case 0:
        child.signal('SIGSTOP');
        await sleep(300);
        child.signal('SIGCONT');
        this.done.freezes += 1;
        break;
      case 1:
        this.done.cuts += Number(await this.client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'));
        break;
      case 2:
        this.limits.process.pause();
        await sleep(200);
        this.limits.process.resume();
        await this.client.script('FLUSH');
        this.done.flushes += 1;
        break;
      default:
        await child.kill();
        this.crew[index] = this.member();
        this.done.kills += 1;
        await this.crew[index].says('ready');
    }
  }
}

async function callsOf(notes: Redis, key: string): Promise<Call[]> {
  const lines = await notes.lrange(key, 0, -1);
  return lines.map((line) => {
    const [asked = 0, answered = 0] = line.split(' ').map(Number);
    return { asked, answered };
  });
}

/** Over all time spans: the calls that were certainly allowed within one, less the burst and what came back in it. */
function excessOf(calls: readonly Call[], { burst, interval }: CrewWork): number {
  const byAnswer = calls.toSorted((one, other) => one.answered - other.answered);
  let most = -burst;
  for (const { asked: from } of calls) {
    let within = 0;
    for (const { asked, answered } of byAnswer) {
      if (asked < from) continue;
      within += 1;
      most = Math.max(most, within - burst - (answered - from) / interval);
    }
  }
  return most;
}

const PROCESSES = Number(process.env['RATE_LIMIT_PROCESSES'] ?? 2);
const BURST = 20;
/**
 * One unit in 5 ms, of a single key: processes that lack processor time ask for more than that, too.
 * `RATE_LIMIT_MS=150000 RATE_LIMIT_PROCESSES=4` makes a long run, and prints what it counted.
 */
const WORK = {
  processes: PROCESSES,
  keys: 1,
  duration: Number(process.env['RATE_LIMIT_MS'] ?? 1_600),
  interval: 5_000,
};
const LIMIT = { limit: 200, per: '1s', burst: BURST, onFailure: 'closed' } as const;
const LOCAL_SHARE = 5;

it.each([
  ['several processes never get more than the limit', BURST, LIMIT],
  [
    'with a local share, they get at most that share for each process more',
    BURST + PROCESSES * LOCAL_SHARE,
    { ...LIMIT, localShare: LOCAL_SHARE },
  ],
] as const)(
  '%s in any time span, amid kills, freezes, cut connections and SCRIPT FLUSH',
  async (_what, burst, options) => {
    const { mischief, ...report } = await runLimitedCrew({ ...WORK, burst, options });
    for (const done of Object.values(mischief)) expect(done).toBeGreaterThan(0);
    expect(report.denied).toBeGreaterThan(0);
    expect(report.noted).toBeGreaterThan(BURST * WORK.keys);
    expect(report.excess).toBeLessThanOrEqual(0);
    if (process.env['RATE_LIMIT_MS']) console.log({ ...report, ...mischief });
  },
  120_000 + 2 * WORK.duration,
);
