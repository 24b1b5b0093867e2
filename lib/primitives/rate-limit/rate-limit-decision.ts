import type { RateLimitSettings, ResolvedLimit } from './rate-limit-options.js';

/** Who decided: the store; this process alone (`onFailure: 'local'`); or nobody (`onFailure: 'open'`). @inline */
export type DecidedBy = 'store' | 'process' | 'nobody';

/** The state of one limit after a call. */
export interface RateLimitState {
  readonly limit: number;
  /** In ms. */
  readonly per: number;
  readonly burst: number;
  /** The units that can be taken at once. */
  readonly remaining: number;
  /** Milliseconds until one more unit is there; 0 when all are. */
  readonly nextAfter: number;
  /** Milliseconds until all units are there. */
  readonly resetAfter: number;
}

/** The answer to a call. With several limits, the numbers are those of the limit with the fewest units remaining. */
export interface RateLimitDecision {
  readonly allowed: boolean;
  readonly limit: number;
  /** The units that can be taken at once, after this call. */
  readonly remaining: number;
  /** Milliseconds after which a call of this cost can be allowed; 0 when this one is. */
  readonly retryAfter: number;
  /** Milliseconds until all units of all limits are there. */
  readonly resetAfter: number;
  /** One for each limit, in the order in which they were given. */
  readonly states: readonly RateLimitState[];
  readonly decidedBy: DecidedBy;
}

/** What a store answered, or what is known of it. */
export interface Usage {
  readonly allowed: boolean;
  /** For each limit: the µs until all units are there. */
  readonly used: readonly number[];
  /** Units that this process holds, beyond those that the store knows of. */
  readonly held?: number;
  readonly decidedBy: DecidedBy;
}

export function decisionOf(
  { limits, cost }: Pick<RateLimitSettings, 'limits' | 'cost'>,
  { allowed, used, held = 0, decidedBy }: Usage,
): RateLimitDecision {
  const states: RateLimitState[] = [];
  let tightest: RateLimitState | undefined;
  let [retryAfter, resetAfter] = [0, 0];
  for (const [index, each] of limits.entries()) {
    const usedOfLimit = used[index] as number;
    const state = stateOf(each, usedOfLimit, held);
    states.push(state);
    if (!tightest || state.remaining < tightest.remaining) tightest = state;
    resetAfter = Math.max(resetAfter, state.resetAfter);
    const missing = usedOfLimit + cost * each.interval - each.capacity;
    if (!allowed) retryAfter = Math.max(retryAfter, wholeMilliseconds(missing));
  }
  const { limit, remaining } = tightest as RateLimitState;
  return { allowed, limit, remaining, retryAfter, resetAfter, states, decidedBy };
}

function stateOf({ limit, per, burst, interval, capacity }: ResolvedLimit, used: number, held: number): RateLimitState {
  const left = Math.floor((capacity - used) / interval);
  return {
    limit,
    per,
    burst,
    remaining: Math.min(burst, left + held),
    nextAfter: left === burst ? 0 : wholeMilliseconds(used - (burst - left - 1) * interval),
    resetAfter: wholeMilliseconds(used),
  };
}

function wholeMilliseconds(microseconds: number): number {
  return Math.ceil(microseconds / 1_000);
}
