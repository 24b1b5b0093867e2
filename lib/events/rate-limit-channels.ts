import { eventChannel, type EventChannels } from './event-channel.js';
import type { LockSource } from './lock-channels.js';

/** An event of one rate-limited key. */
export interface RateLimitEvent extends LockSource {
  /** For the storage of @nestjs/throttler: `throttler:<application>:<name>:` and its key. */
  readonly key: string;
  /** The key template of the decorator, or `Class.method` if it has a function; `undefined` without a decorator. */
  readonly template: string | undefined;
}

/** A call that was decided. */
export interface RateLimitDecided extends RateLimitEvent {
  /** The units that the call takes. */
  readonly cost: number;
  /**
   * `store`: the store decided, or this process by a share of the store. `process`: the store failed, and this process
   * decided alone. `nobody`: the store failed, and the call was allowed unseen.
   */
  readonly decidedBy: 'store' | 'process' | 'nobody';
}

/** A call was allowed. */
export interface RateLimitAllowed extends RateLimitDecided {}

/** A call was refused. */
export interface RateLimitRefused extends RateLimitDecided {
  /** Milliseconds after which a call of this cost can be allowed. */
  readonly retryAfter: number;
}

/** The store failed, and the call rejects: `onFailure` is 'closed', or the application was ending. */
export interface RateLimitFailed extends RateLimitEvent {
  readonly error: unknown;
}

/** The events of rate limits, by name. */
export interface RateLimitEventTypes {
  allowed: RateLimitAllowed;
  refused: RateLimitRefused;
  failed: RateLimitFailed;
}

/** The channels of the rate limits. */
export const rateLimitChannels: EventChannels<RateLimitEventTypes> = {
  allowed: eventChannel('rate-limit:allowed'),
  refused: eventChannel('rate-limit:refused'),
  failed: eventChannel('rate-limit:failed'),
};
