import type { EntrySettings } from './entry-settings.js';

/** How much longer (ms) Redis keeps a tag than the values that have it. */
const TAG_MARGIN = 60_000;

/** Milliseconds for which a value counts as fresh, at most `ttl`; 0 for a value that must not be stored. */
export function timeToLive(value: unknown, { ttl, nullTtl, jitter }: EntrySettings, ofLoader = ttl): number {
  return jittered(isAbsent(value) ? Math.min(ofLoader, nullTtl) : ofLoader, jitter);
}

/** Milliseconds for which a value is kept beyond its `ttl`; 0 for an absent value, which is never served stale. */
export function staleTtlOf(value: unknown, { staleTtl }: Pick<EntrySettings, 'staleTtl'>): number {
  return isAbsent(value) ? 0 : staleTtl;
}

/** Milliseconds for which Redis keeps the tags of a value that it keeps for `kept` ms. */
export function tagMemory(kept: number): number {
  return kept + TAG_MARGIN;
}

/** Shortens `ttl` by at most the part `jitter` of it, so that values stored together do not expire together. */
function jittered(ttl: number, jitter: number): number {
  return Math.ceil(ttl * (1 - jitter * Math.random()));
}

function isAbsent(value: unknown): boolean {
  return value === null || value === undefined;
}
