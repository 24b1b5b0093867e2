import { eventChannel, type EventChannels } from './event-channel.js';

/** An event of one key. */
export interface CacheKeyEvent {
  /** With the prefix of its namespace. */
  readonly key: string;
  /** The key template of the decorator, or `Class.method` if it has a function; `undefined` without a decorator. */
  readonly template: string | undefined;
}

/** A read found a value. */
export interface CacheHit extends CacheKeyEvent {
  /** `first`: in the memory of this process; `second`: in the store. */
  readonly level: 'first' | 'second';
  /** Whether the value was served stale. */
  readonly stale: boolean;
}

/** A read found no value that it may serve. */
export interface CacheMiss extends CacheKeyEvent {}

/** A loader runs. The same object is the `load` of the event that ends it. */
export interface CacheLoadStarted extends CacheKeyEvent {}

/** A loader has ended. */
export interface CacheLoad extends CacheKeyEvent {
  /** The event that began it; `undefined` if nobody listened then. */
  readonly load: CacheLoadStarted | undefined;
  /** Milliseconds that the loader ran; `undefined` if nobody listened when it began. */
  readonly took: number | undefined;
  /** Why it failed; `undefined` after success. */
  readonly error: unknown;
}

/** A load in the background failed; the value that was to be refreshed stays. */
export interface CacheRefreshFailed extends CacheKeyEvent {
  readonly error: unknown;
}

/** The store refused a loaded value, because the key was invalidated or the load lease ended meanwhile. */
export interface CacheCommitRefused extends CacheKeyEvent {}

/** Something was invalidated: exactly one of the properties is set. */
export interface CacheInvalidate {
  readonly key: string | undefined;
  readonly tag: string | undefined;
  /** The prefix or the pattern of the keys. */
  readonly matching: string | undefined;
}

/** The store did not confirm a deletion, which is repeated until it does. */
export interface CacheUnconfirmed {
  /** Names the deletion with its key, tag, prefix or pattern. */
  readonly what: string;
}

/** The store confirmed a deletion that it had not confirmed at first. */
export interface CacheConfirmed {
  /** As in `unconfirmed`. */
  readonly what: string;
}

/** The store failed repeatedly: the cache sends it no commands until it answers, or `open` ms have passed. */
export interface CacheBreakerOpened {
  /** How often the circuit breaker has opened since the application began. */
  readonly opened: number;
}

/** The cache sends commands again. */
export interface CacheBreakerClosed {
  /** How often the circuit breaker has opened since the application began. */
  readonly opened: number;
}

/** The events of caches, by name. */
export interface CacheEventTypes {
  hit: CacheHit;
  miss: CacheMiss;
  loadStarted: CacheLoadStarted;
  load: CacheLoad;
  refreshFailed: CacheRefreshFailed;
  commitRefused: CacheCommitRefused;
  invalidate: CacheInvalidate;
  unconfirmed: CacheUnconfirmed;
  confirmed: CacheConfirmed;
  breakerOpened: CacheBreakerOpened;
  breakerClosed: CacheBreakerClosed;
}

/** The channels of the caches. */
export const cacheChannels: EventChannels<CacheEventTypes> = {
  hit: eventChannel('cache:hit'),
  miss: eventChannel('cache:miss'),
  loadStarted: eventChannel('cache:load-started'),
  load: eventChannel('cache:load'),
  refreshFailed: eventChannel('cache:refresh-failed'),
  commitRefused: eventChannel('cache:commit-refused'),
  invalidate: eventChannel('cache:invalidate'),
  unconfirmed: eventChannel('cache:unconfirmed'),
  confirmed: eventChannel('cache:confirmed'),
  breakerOpened: eventChannel('cache:breaker-opened'),
  breakerClosed: eventChannel('cache:breaker-closed'),
};
