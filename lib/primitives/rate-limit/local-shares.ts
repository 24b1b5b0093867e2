import type { RateLimitCounts, Taken } from './rate-limit-counts.js';
import type { RateLimitSettings } from './rate-limit-options.js';

/** Shares beyond these are forgotten, the least recently used first: what they hold is lost until it comes back. */
const MOST_KEYS = 10_000;

/** What this process knows of one key. Times in ms of the monotonic clock. */
interface Share {
  /** Units taken from the store and not spent yet, until `ends`. */
  units: number;
  ends: number;
  /** The last answer of the store, and when it arrived. */
  answer: Taken | undefined;
  at: number;
  /** Calls of this cost and above are denied until then. */
  deniedCost: number;
  deniedUntil: number;
  /** The request to the store that is under way. */
  refill: Promise<Taken> | undefined;
}

/**
 * Takes units of hot keys in shares and spends them in the process. While the store has denied a cost, calls of that
 * cost are denied without asking again.
 */
export class LocalShares {
  /** In the order of their last use. */
  private readonly shares = new Map<string, Share>();

  constructor(private readonly counts: RateLimitCounts) {}

  async take(key: string, settings: RateLimitSettings, most: number): Promise<Taken & { readonly held: number }> {
    const share = this.shareOf(key, settings);
    const { cost } = settings;
    for (;;) {
      const now = performance.now();
      if (now >= share.ends) share.units = 0;
      const answer = deciding(share.answer, settings);
      if (answer && share.units >= cost) {
        share.units -= cost;
        return { ...agedAnswer(share, answer, now), allowed: true, granted: cost, held: share.units };
      }
      if (answer && cost >= share.deniedCost && now < share.deniedUntil) {
        return { ...agedAnswer(share, answer, now), allowed: false, granted: 0, held: share.units };
      }
      if (!share.refill) return this.refill(share, key, settings, most);
      const shared = await answerTo(share.refill, settings);
      // Nobody counts, so that there is nothing to share.
      if (shared?.decidedBy === 'nobody' && settings.onFailure === 'open') {
        return { ...shared, granted: cost, held: 0 };
      }
    }
  }

  forget(key: string, settings: RateLimitSettings): void {
    this.shares.delete(idOf(key, settings));
  }

  /** The caller whose request it is gets its units first; the others share the rest, and ask again where it ends. */
  private async refill(share: Share, key: string, settings: RateLimitSettings, most: number) {
    const { cost, limits } = settings;
    share.refill = this.counts.take(key, settings, { least: cost, most: Math.max(cost, most - share.units) });
    try {
      const answer = await share.refill;
      share.at = performance.now();
      if (share.answer?.decidedBy !== answer.decidedBy) share.units = 0;
      share.answer = answer;
      if (answer.allowed) {
        share.units += answer.granted - cost;
        share.ends = share.at + Math.min(...limits.map(({ per }) => per));
        share.deniedUntil = 0;
      } else {
        share.deniedCost = cost;
        share.deniedUntil = share.at + shortestWait(settings, answer);
      }
      return { ...answer, held: share.units };
    } finally {
      share.refill = undefined;
    }
  }

  private shareOf(key: string, settings: RateLimitSettings): Share {
    const id = idOf(key, settings);
    const share = this.shares.get(id) ?? newShare();
    this.shares.delete(id);
    this.shares.set(id, share);
    const [oldest] = this.shares.size > MOST_KEYS ? this.shares.keys() : [];
    if (oldest !== undefined) this.shares.delete(oldest);
    return share;
  }
}

function newShare(): Share {
  return { units: 0, ends: 0, answer: undefined, at: 0, deniedCost: 0, deniedUntil: 0, refill: undefined };
}

function idOf(key: string, { limits }: RateLimitSettings): string {
  return `${key}\n${limits.map(({ id }) => id).join()}`;
}

/** The last answer, where it may decide a call: one that this process gave alone decides only calls that ask for it. */
function deciding(answer: Taken | undefined, { onFailure }: RateLimitSettings): Taken | undefined {
  return answer?.decidedBy === 'store' || onFailure === 'local' ? answer : undefined;
}

/**
 * Waits for the request of another call. Its failure decides this call only where it would not go on without the store.
 */
async function answerTo(refill: Promise<Taken>, { onFailure }: RateLimitSettings): Promise<Taken | undefined> {
  try {
    return await refill;
  } catch (error) {
    if (onFailure === 'closed') throw error;
    return undefined;
  }
}

/** Milliseconds until the store can allow the cost that it has denied. */
function shortestWait({ limits, cost }: RateLimitSettings, { used }: Taken): number {
  const waits = limits.map(({ interval, capacity }, index) => (used[index] as number) + cost * interval - capacity);
  return Math.max(...waits) / 1_000;
}

/** What the store would answer by now, if nobody else had taken units. */
function agedAnswer({ at }: Share, answer: Taken, now: number): Taken {
  const passed = Math.floor((now - at) * 1_000);
  return { ...answer, used: answer.used.map((each) => Math.max(0, each - passed)) };
}
