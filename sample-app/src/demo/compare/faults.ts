import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { LOCK_TTL } from '../../settings.js';
import { HeldReads } from './held-reads.js';
import type { Scheme } from './schemes.js';
import type { Stage } from './stage.js';
import { Trial, type FaultOutcome } from './trial.js';

/** Milliseconds: beyond the lease of a lock. */
export const FREEZE = 1.5 * LOCK_TTL;
/** Milliseconds for which an order goes on after its server serves again: another one may get in beside it. */
export const AFTER_RESTART = 1_000;

/** By what was done in the middle of an order. */
export interface FaultOutcomes {
  readonly killed: FaultOutcome;
  readonly frozen: FaultOutcome;
  readonly restarted: FaultOutcome;
}

/** Strikes one order of each scheme with each fault. */
export async function outcomesOfFaults(
  stage: Stage,
  schemes: readonly Scheme[],
  database: pg.Pool,
): Promise<readonly FaultOutcomes[]> {
  const { killed, frozen } = await strikeShops(stage, schemes, database);
  const restarted = await restartServer(stage, schemes, database);
  return schemes.map((_, index) => ({
    killed: killed[index] as FaultOutcome,
    frozen: frozen[index] as FaultOutcome,
    restarted: restarted[index] as FaultOutcome,
  }));
}

/** Kills one process of the shop and freezes another one, while a third goes on. */
async function strikeShops(stage: Stage, schemes: readonly Scheme[], database: pg.Pool) {
  const [doomed, sleeper, other] = stage.shops;
  const [killed, frozen] = await Promise.all([
    Promise.all(schemes.map((scheme) => Trial.open(scheme, 'killed', other))),
    Promise.all(schemes.map((scheme) => Trial.open(scheme, 'frozen', other))),
  ]);
  const held = await HeldReads.begin(database);
  try {
    for (const trial of killed) trial.begin(doomed);
    for (const trial of frozen) trial.begin(sleeper);
    await held.are(killed.length + frozen.length);
    sleeper.process.pause();
    await doomed.process.kill();
    for (const trial of [...killed, ...frozen]) trial.compete(other);
  } finally {
    await held.end();
  }
  await sleep(FREEZE);
  sleeper.process.resume();
  return { killed: await outcomesOf(killed, database), frozen: await outcomesOf(frozen, database) };
}

async function restartServer(stage: Stage, schemes: readonly Scheme[], database: pg.Pool) {
  const [, holder, other] = stage.shops;
  const trials = await Promise.all(schemes.map((scheme) => Trial.open(scheme, 'restarted', other)));
  const held = await HeldReads.begin(database);
  try {
    for (const trial of trials) trial.begin(holder);
    await held.are(trials.length);
    for (const trial of trials) trial.compete(other);
    await stage.restartServer();
    await sleep(AFTER_RESTART);
  } finally {
    await held.end();
  }
  return outcomesOf(trials, database);
}

function outcomesOf(trials: readonly Trial[], database: pg.Pool): Promise<FaultOutcome[]> {
  return Promise.all(trials.map((trial) => trial.outcome(database)));
}
