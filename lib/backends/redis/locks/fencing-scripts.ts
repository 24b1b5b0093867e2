import type { RedisScript, RunScript, Stepwise } from '../connection/redis-script.js';
import { ACQUIRE_ALL, ACQUIRE_OR_ENQUEUE, BEAT, REQUEUE, TAKE_ALONE } from './acquire.lua.js';
import { FENCE_TTL, MINT, MINT_ALONE, MORE_TOKENS, READERS_VALUE, UNISSUED, withFenceTtl } from './queue.lua.js';
import { DOWNGRADE, READ_ALL, READ_OR_ENQUEUE } from './readers.lua.js';
import { FORCE_RELEASE, RELEASE, RELEASE_ALONE } from './release.lua.js';

/** The scripts that may issue fencing tokens. */
export interface FencingScripts {
  readonly acquireAll: RedisScript;
  readonly acquireOrEnqueue: RedisScript;
  readonly beat: RedisScript;
  readonly requeue: RedisScript;
  readonly release: RedisScript;
  readonly forceRelease: RedisScript;
  readonly mint: RedisScript;
  readonly readAll: RedisScript;
  readonly readOrEnqueue: RedisScript;
  readonly downgrade: RedisScript;
}

/** The scripts for counters that are kept for `fenceTtl` ms after the last grant. */
export function fencingScripts(fenceTtl: number = FENCE_TTL): FencingScripts {
  const of = (script: RedisScript) => (fenceTtl === FENCE_TTL ? script : withFenceTtl(script, fenceTtl));
  const steps = oneKeySteps(of(MINT_ALONE));
  return {
    acquireAll: of(ACQUIRE_ALL),
    acquireOrEnqueue: { ...of(ACQUIRE_OR_ENQUEUE), stepwise: steps.enqueue },
    beat: { ...of(BEAT), stepwise: steps.beat },
    requeue: of(REQUEUE),
    release: { ...of(RELEASE), stepwise: steps.release },
    forceRelease: of(FORCE_RELEASE),
    mint: { ...of(MINT), stepwise: steps.mint },
    readAll: of(READ_ALL),
    // While a slot is moved, a reader takes a free lock alone.
    readOrEnqueue: { ...of(READ_OR_ENQUEUE), stepwise: steps.enqueue },
    downgrade: of(DOWNGRADE),
  };
}

/** The lease (ms) of a lock that a waiter is granted: a dead one must not cost a whole `ttl`. */
const CLAIM = 1_000;
/** Waiters are not in the queue, and no message reaches them: they ask as often as they can. */
const UNREACHED = 1;

interface Steps {
  readonly enqueue: Stepwise;
  readonly beat: Stepwise;
  readonly mint: Stepwise;
  readonly release: Stepwise;
}

/**
 * What locks do while a Cluster migrates their slot. A script of four keys is refused then, unless all four exist and
 * are at one node: the source refuses it where some are missing, the target where any is. A script of one key is never
 * refused: the node that has the key, or the target if it is missing, carries it out.
 *
 * - The lock alone decides who owns it, in one atomic step.
 * - The token is minted after the lock was taken, and the lock is looked at once more after that. As it was owned all
 *   the time, every earlier owner minted before, and every later one mints after.
 * - Nobody queues: waiters ask every 50 ms, and the first that asks after a release gets the lock.
 *
 * Replies are those of the scripts with the same names.
 */
export function oneKeySteps(mintAlone: RedisScript): Steps {
  const ask = async (run: RunScript, [lock = '', fence = '']: readonly string[], ticket: string, lease: number) => {
    const [owner, left] = await taken(run, lock, ticket, lease);
    if (owner === ticket) {
      const [first, count] = await minted(run, fence, 1, 0);
      const [still, pttl] = await taken(run, lock, ticket, '');
      return still === ticket ? [1, first, count, pttl, 0] : undefined;
    }
    // Read after the lock: it is above the token of each grant that this ticket had, and lost, before.
    return [0, await run(UNISSUED, [fence], []), 1, left, ownerIn(owner), UNREACHED];
  };
  const minted = async (run: RunScript, fence: string, most: number, least: number) =>
    (await run(mintAlone, [fence], [most, least])) as [first: string, count: number];
  return {
    enqueue: (run, keys, [, ticket, lease]) => ask(run, keys, String(ticket), Number(lease)),
    beat: (run, keys, [, ticket]) => ask(run, keys, String(ticket), CLAIM),
    async mint(run, [lock = '', fence = ''], [, ticket, least]) {
      const tokens = await minted(run, fence, MORE_TOKENS, Number(least));
      const [owner] = await taken(run, lock, String(ticket), '');
      if (owner.startsWith(READERS_VALUE)) return undefined;
      return owner === ticket ? tokens : [];
    },
    release: (run, [lock = ''], [, ticket]) => run(RELEASE_ALONE, [lock], [String(ticket)]),
  };
}

/** The readers of a lock are all in its value. */
function ownerIn(value: string): string {
  return value.startsWith(READERS_VALUE) ? READERS_VALUE.trim() : value;
}

async function taken(run: RunScript, lock: string, ticket: string, lease: number | '') {
  return (await run(TAKE_ALONE, [lock], [ticket, lease])) as [owner: string, pttl: number];
}
