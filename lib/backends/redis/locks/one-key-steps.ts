import type { RedisScript, RunScript, Stepwise } from '../scripting/redis-script.js';
import { READERS_VALUE } from './readers/readers.lua.js';
import { UNISSUED } from './scripts/mint.lua.js';
import { MORE_TOKENS } from './scripts/queue.lua.js';
import { RELEASE_ALONE } from './scripts/release.lua.js';
import { TAKE_ALONE } from './scripts/take.lua.js';

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
