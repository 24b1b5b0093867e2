import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { Crew, type Work } from './crew.js';
import { Evidence, type Tally } from './evidence.js';
import { Mischief, type Kind } from './mischief.js';
import { Random } from './random.js';
import { BOUNDS, SETTINGS } from './settings.js';

export interface ContentionOptions extends Partial<Omit<Work, 'seed'>> {
  readonly seed: number;
  /** Goes on until so many holds were counted... */
  readonly cycles: number;
  /** ... and for at least so long (ms), and until every kind of mischief was done. */
  readonly duration?: number;
  /** The longest peace (ms) between two bursts of mischief. */
  readonly pause?: number;
  /** A burst of mischief comes every so many ms, however long the contenders take to recover; otherwise when they have. */
  readonly rhythm?: number | undefined;
  /** Goes on although something was found that must not be. */
  readonly tolerant?: boolean;
  readonly onProgress?: (tally: Tally) => void;
}

export interface ContentionReport extends Tally {
  readonly seed: number;
  readonly peer: Work['peer'];
  /** Holds for each second of the contention, peace and mischief. */
  readonly rate: number;
  readonly mischief: Readonly<Record<Kind, number>>;
  /** How long (ms) it took at most until every name was taken again, once a burst of mischief was over. */
  readonly longestRecovery: number;
  /** What must not be, the first of it; empty when all is well. */
  readonly findings: readonly string[];
}

export const LONGEST_PAUSE = 150;
export const LONG_HOLDS = 150;
const POLL = 5;

/** Has processes contend for a few locks amid mischief, and reports what must not be. */
export async function runContention(options: ContentionOptions): Promise<ContentionReport> {
  const { seed, cycles, duration = 0, pause = LONGEST_PAUSE, rhythm, tolerant = false, onProgress } = options;
  const { peer = 'ours', modules, longHolds = LONG_HOLDS } = options;
  const random = new Random(seed);
  await using redis = await startRedisServer();
  await using witness = await startRedisServer();
  const evidence = await Evidence.open(witness.port, SETTINGS.names);
  const notes: Promise<void>[] = [];
  const note = (what: string) => void notes.push(evidence.note(what));
  const crew = await Crew.gather({ seed, peer, modules, longHolds }, redis.port, evidence.address, note);
  const mischief = new Mischief(random, crew, evidence, redis.port);
  let longestRecovery = 0;
  let rate = 0;

  async function contend(): Promise<void> {
    const start = performance.now();
    for (;;) {
      const nextBurst = rhythm === undefined ? undefined : sleep(rhythm);
      await sleep(random.whole(0, pause));
      await mischief.burst();
      longestRecovery = Math.max(longestRecovery, await recovery(evidence, note));
      await nextBurst;
      const tally = await evidence.tally();
      const elapsed = performance.now() - start;
      rate = (tally.cycles / elapsed) * 1_000;
      onProgress?.(tally);
      if (tally.findingsInAll > 0 && !tolerant) return;
      if (tally.cycles >= cycles && elapsed > duration && mischief.complete) break;
    }
    await crew.drain();
    await noteLeftovers(redis.port, note);
    await crew.dismiss();
    await evidence.noteLostUpdates();
    const { longestWait } = await evidence.tally();
    if (longestWait > BOUNDS.wait) note(`a caller waited ${longestWait} ms, longer than ${BOUNDS.wait} ms`);
  }

  try {
    // A process that does not start or does not end is a finding like others, and must not hide them.
    await contend().catch((error: unknown) => note(String(error)));
    await Promise.all(notes);
    const [tally, findings] = await Promise.all([evidence.tally(), evidence.findings()]);
    return { ...tally, seed, peer, rate, mischief: mischief.done, longestRecovery, findings };
  } finally {
    mischief.close();
    await crew.disband();
    await evidence.close();
  }
}

/** How long (ms) it takes until each name was taken and given back once more. */
async function recovery(evidence: Evidence, note: (what: string) => void): Promise<number> {
  const start = performance.now();
  const before = await evidence.accepted();
  for (;;) {
    const after = await evidence.accepted();
    const waited = Math.round(performance.now() - start);
    const stuck = SETTINGS.names.filter((_, index) => after[index] === before[index]);
    if (stuck.length === 0) return waited;
    if (waited > BOUNDS.recovery) {
      note(`nobody got ${stuck.join(', ')} for ${waited} ms after the last mischief`);
      return waited;
    }
    await sleep(POLL);
  }
}

/** Locks and queues must be gone soon after the last caller; what may stay (fences, and labels of processes) must expire. */
async function noteLeftovers(port: number, note: (what: string) => void): Promise<void> {
  const client = new Redis({ host: '127.0.0.1', port });
  try {
    const leftovers = async () => (await client.keys('*')).filter((key) => !/:(fence|label)$/.test(key));
    const until = performance.now() + BOUNDS.cleanup;
    while ((await leftovers()).length > 0 && performance.now() < until) await sleep(POLL);
    const left = await leftovers();
    if (left.length > 0) note(`left at Redis: ${left.join(', ')}`);
    for (const key of await client.keys('*')) {
      if ((await client.pttl(key)) === -1) note(`left at Redis for ever: ${key}`);
    }
  } finally {
    client.disconnect();
  }
}
