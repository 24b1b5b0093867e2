import { setTimeout as sleep } from 'node:timers/promises';
import Table from 'cli-table3';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { Crew, type Work } from './crew.js';
import { Evidence, type Tally } from './evidence.js';
import { Mischief } from './mischief.js';
import { BOUNDS, Random, recoveryBound, SETTINGS } from './settings.js';
import { type Backend, startStore, type Store } from './stores.js';

interface ContentionOptions extends Partial<Omit<Work, 'seed' | 'abrupt'>> {
  readonly seed: number;
  /** Where the locks are kept. */
  readonly backend?: Backend;
  /** Goes on until this number of holds was counted, */
  readonly cycles: number;
  /** for at least this time (ms), and until every kind of fault has struck. */
  readonly duration?: number;
  /** The longest peace (ms) between two bursts of mischief. */
  readonly pause?: number;
  /**
   * A burst of faults strikes every `rhythm` ms, however long the contenders take to recover; by default when they
   * have.
   */
  readonly rhythm?: number | undefined;
  /** Goes on although something was found that must not be. */
  readonly tolerant?: boolean;
  readonly onProgress?: (tally: Tally) => void;
}

export interface ContentionReport extends Tally {
  readonly seed: number;
  readonly peer: Work['peer'];
  readonly backend: Backend;
  /** Holds for each second of the contention, peace and mischief. */
  readonly rate: number;
  readonly mischief: Readonly<Record<string, number>>;
  /** How long (ms) it took at most until every name was taken again, once a burst of mischief was over. */
  readonly longestRecovery: number;
  /** How long (ms) it may take. */
  readonly recoveryBound: number;
  /** What must not be, the first of it; empty when all is well. */
  readonly findings: readonly string[];
}

export const LONGEST_PAUSE = 150;
export const LONG_HOLDS = 150;
const POLL = 5;

/** Has processes contend for a few locks amid mischief, and reports what must not be. */
export async function runContention(options: ContentionOptions): Promise<ContentionReport> {
  const { seed, cycles, duration = 0, pause = LONGEST_PAUSE, rhythm, tolerant = false, onProgress } = options;
  const { peer = 'ours', modules, longHolds = LONG_HOLDS, reads = 0, backend = 'redis' } = options;
  const random = new Random(seed);
  await using store = await startStore(backend);
  await using witness = await startRedisServer();
  const evidence = await Evidence.open(witness.port, SETTINGS.names);
  const notes: Promise<void>[] = [];
  const note = (what: string) => void notes.push(evidence.note(what));
  const { abrupt = false, ports } = store;
  const work = { seed, peer, backend, abrupt, modules, longHolds, reads };
  const crew = await Crew.gather(work, ports, evidence.address, note);
  const mischief = new Mischief(random, crew, evidence, store);
  let longestRecovery = 0;
  let rate = 0;

  async function contend(): Promise<void> {
    const start = performance.now();
    for (;;) {
      const nextBurst = rhythm === undefined ? undefined : sleep(rhythm);
      await sleep(random.whole(0, pause));
      await mischief.burst();
      longestRecovery = Math.max(longestRecovery, await recovery(evidence, store, note));
      await nextBurst;
      const tally = await evidence.tally();
      const elapsed = performance.now() - start;
      rate = (tally.cycles / elapsed) * 1_000;
      onProgress?.(tally);
      if (tally.findingsInAll > 0 && !tolerant) return;
      if (tally.cycles >= cycles && elapsed > duration && mischief.complete) break;
    }
    await crew.drain();
    await noteLeftovers(store, note);
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
    return {
      ...tally,
      seed,
      peer,
      backend,
      rate,
      mischief: mischief.done,
      longestRecovery,
      recoveryBound: recoveryBound(store.lease),
      findings,
    };
  } finally {
    await crew.disband();
    await evidence.close();
  }
}

/** How long (ms) it takes until each name was taken and given back once more. */
async function recovery(evidence: Evidence, { lease }: Store, note: (what: string) => void): Promise<number> {
  const start = performance.now();
  const before = await evidence.ended();
  for (;;) {
    const after = await evidence.ended();
    const waited = Math.round(performance.now() - start);
    const stuck = SETTINGS.names.filter((_, index) => after[index] === before[index]);
    if (stuck.length === 0) return waited;
    if (waited > recoveryBound(lease)) {
      note(`nobody got ${stuck.join(', ')} for ${waited} ms after the last mischief`);
      return waited;
    }
    await sleep(POLL);
  }
}

/** Locks and queues must be gone soon after the last caller; what may stay must expire. */
async function noteLeftovers(store: Store, note: (what: string) => void): Promise<void> {
  const until = performance.now() + BOUNDS.cleanup;
  while ((await store.leftovers()).length > 0 && performance.now() < until) await sleep(POLL);
  const left = await store.leftovers();
  if (left.length > 0) note(`left at the store: ${left.join(', ')}`);
  for (const key of await store.endless()) note(`left at the store for ever: ${key}`);
}

const TITLES: Readonly<Record<string, string>> = {
  kill: 'processes killed',
  stop: 'processes stopped',
  drop: 'connections dropped',
  flush: 'scripts flushed',
  clientKill: 'clients killed',
  pubsubKill: 'subscribers killed',
  serverStop: 'standstills of the server',
  serverRestart: 'restarts of the server',
  sessionKill: 'sessions ended by the server',
  nodeStop: 'standstills of a node',
  nodeRestart: 'restarts of a node',
};

/** One column for each run. */
export function summary(...reports: readonly ContentionReport[]): string {
  const table = new Table({
    style: { head: [], border: [] },
    colAligns: ['left', ...reports.map(() => 'right' as const)],
  });
  const row = (title: string, value: (report: ContentionReport) => number | string) =>
    table.push([title, ...reports.map(value)]);
  row('locks of', ({ peer }) => peer);
  row('backend', ({ peer, backend }) => (peer === 'ours' ? backend : 'redis'));
  row('seed', ({ seed }) => seed);
  row('cycles', ({ cycles }) => cycles);
  row('of which read', ({ reads }) => reads);
  row('cycles a second', ({ rate }) => rate.toFixed(1));
  for (const kind of new Set(reports.flatMap(({ mischief }) => Object.keys(mischief)))) {
    row(TITLES[kind] ?? kind, ({ mischief }) => mischief[kind] ?? 0);
  }
  row('locks lost', ({ lost }) => lost);
  row('fenced off', ({ fencedOff }) => fencedOff);
  row('longest wait', ({ longestWait }) => `${longestWait} of ${BOUNDS.wait} ms`);
  row('longest recovery', (report) => `${report.longestRecovery} of ${report.recoveryBound} ms`);
  row('violations', ({ findingsInAll }) => findingsInAll);
  return [table.toString(), ...reports.flatMap(({ findings }) => findings)].join('\n');
}
