import type { Minted, TicketRequest } from '../../contracts/lock-backend.js';
import type { TokenClock } from './nodes/token-clock.js';
import { acquireKeys } from './redlock-keys.js';
import { MintTally } from './rounds/mint-tally.js';
import type { Quorum } from './rounds/quorum.js';
import { ask, type Ask } from './rounds/round.js';
import type { RedisScript } from '../redis/scripting/redis-script.js';

/**
 * Another ticket reserves tokens at a minority of the nodes meanwhile at most: a second try is rare, a fifth is none.
 */
const MOST_TRIES = 5;

/**
 * Reserves `count` fencing tokens from `least` on for the ticket that owns the names: proposes the largest counter that
 * a node has stated until a majority accepts it. Any two majorities share a node, so that no range is reserved twice,
 * and each one is above those of earlier grants. Returns `null` when the ticket owns the names no more.
 */
export async function reserveTokens(
  quorum: Quorum,
  clock: TokenClock,
  script: RedisScript,
  request: TicketRequest,
  least: number,
  count: number,
): Promise<Minted | null> {
  const { names, ticket } = request;
  const keys = acquireKeys(request);
  let first = clock.propose(least);
  for (let tries = 0; tries < MOST_TRIES; tries++) {
    const args = [ticket, first, count, names.length];
    const send: Ask = (node, call) => {
      if (quorum.skips(node)) return 'away';
      if (node.isUnsettled(ticket)) return 'postponed';
      node.run(script, keys, args, call);
      return undefined;
    };
    const outcome = await ask(quorum, new MintTally(quorum), send);
    if (outcome.status === 'reserved') return { first, count, waiting: outcome.waiting };
    if (outcome.status === 'not-owner') return null;
    first = Math.max(outcome.unissued, clock.propose(first));
  }
  throw new Error('the nodes accepted no fencing tokens, as other clients reserve them at the same time');
}
