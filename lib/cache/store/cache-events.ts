import {
  cacheChannels,
  type CacheHit,
  type CacheInvalidate,
  type CacheLoadStarted,
} from '../../events/cache-channels.js';
import type { EventChannel } from '../../events/event-channel.js';

/** A load that began while somebody listened. */
export interface ObservedLoad {
  readonly event: CacheLoadStarted;
  /** On the monotonic clock, in ms. */
  readonly begunAt: number;
}

export function publishHit(key: string, template: string | undefined, level: CacheHit['level'], stale = false): void {
  cacheChannels.hit.publish({ key, template, level, stale });
}

/** Publishes what a read by hand found in the store. */
export function publishRead(key: string, found: boolean): void {
  const { hit, miss } = cacheChannels;
  if (found && hit.hasSubscribers) publishHit(key, undefined, 'second');
  else if (!found && miss.hasSubscribers) miss.publish({ key, template: undefined });
}

export function loadsAreObserved(): boolean {
  return cacheChannels.load.hasSubscribers || cacheChannels.loadStarted.hasSubscribers;
}

/** Publishes that a load begins, and notes when. */
export function observeLoad(key: string, template: string | undefined): ObservedLoad {
  const event = { key, template };
  cacheChannels.loadStarted.publish(event);
  return { event, begunAt: performance.now() };
}

export function publishLoad(
  key: string,
  template: string | undefined,
  observed: ObservedLoad | undefined,
  error: unknown,
): void {
  const took = observed && performance.now() - observed.begunAt;
  cacheChannels.load.publish({ key, template, load: observed?.event, took, error });
}

export function publishInvalidate({ key, tag, matching }: Partial<CacheInvalidate>): void {
  cacheChannels.invalidate.publish({ key, tag, matching });
}

export function publishBreaker(channel: EventChannel<{ readonly opened: number }>, opened: number): void {
  if (channel.hasSubscribers) channel.publish({ opened });
}
