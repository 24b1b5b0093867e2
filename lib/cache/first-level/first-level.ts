import { LRUCache } from 'lru-cache';
import type { Entry } from '../values/envelope.js';

export interface FirstLevelSettings {
  readonly max: number;
  readonly maxBytes: number;
  readonly ttl: number;
  readonly serialize: boolean;
  /** Milliseconds that fresh values are served for after messages began to be missed, where the store fails. */
  readonly whileAway: number;
  readonly bus: 'pubsub' | 'tracking';
}

/** Who tells of changes: the messages of the cache, and with `bus: 'tracking'` the store as well. */
type Informant = 'messages' | 'tracking';

/** What is answered. */
export interface Kept {
  readonly entry: Entry;
  readonly value: unknown;
}

interface KeptUntil extends Kept {
  /** On the monotonic clock. `value` is there where values are handed out themselves. */
  readonly until: number;
}

/** What an entry costs beside its payload, roughly. */
const OVERHEAD = 200;

/**
 * Values in the memory of the process, in front of Redis. It is empty while messages of changes may be missed: whoever
 * reads it relies on having heard of every one.
 */
export class FirstLevel {
  private readonly entries: LRUCache<string, KeptUntil>;
  private readonly keysByTag = new Map<string, Set<string>>();
  /** Those who tell nothing at present. */
  private readonly silent: Set<Informant>;
  private trusted = false;
  /** Since when messages may be missed, on the monotonic clock. */
  private awaySince: number | undefined;
  /** Grows whenever messages may have been missed. */
  generation = 0;
  evictions = 0;
  flushes = 0;

  constructor(
    private readonly settings: FirstLevelSettings,
    private readonly valueOf: (entry: Entry) => unknown,
  ) {
    this.silent = new Set(settings.bus === 'tracking' ? ['messages', 'tracking'] : ['messages']);
    this.entries = new LRUCache({
      max: settings.max,
      maxSize: settings.maxBytes,
      sizeCalculation: ({ entry }, key) => entry.payload.length + key.length + OVERHEAD,
      dispose: ({ entry }, key, reason) => {
        if (reason === 'evict') this.evictions += 1;
        for (const tag in entry.tags) this.forgetTag(tag, key);
      },
    });
  }

  get size(): number {
    return this.entries.size;
  }

  /** What is there, with a value of its own unless `serialize` is off. */
  get(key: string): Kept | undefined {
    if (!this.trusted) return undefined;
    const kept = this.entries.get(key);
    if (!kept) return undefined;
    if (performance.now() >= kept.until) {
      if (this.settings.whileAway === 0) this.entries.delete(key);
      return undefined;
    }
    return this.answer(kept);
  }

  /** What is there and fresh, where the store fails: changes may have been missed for as long as `whileAway` allows. */
  spare(key: string): Kept | undefined {
    const { whileAway } = this.settings;
    if (whileAway === 0 || performance.now() >= (this.awaySince ?? Infinity) + whileAway) return undefined;
    const kept = this.entries.get(key);
    return kept && Date.now() < kept.entry.expiresAt ? this.answer(kept) : undefined;
  }

  private answer(kept: Kept): Kept | undefined {
    return this.settings.serialize ? this.withValue(kept.entry) : kept;
  }

  /**
   * Never beyond the ttl that it was stored with. The payload must not be a slice of what a client received, which it
   * would keep.
   */
  keep(key: string, entry: Entry): void {
    if (!this.trusted) return;
    const left = Math.min(this.settings.ttl, entry.expiresAt - Date.now());
    if (left <= 0) return;
    const kept = this.settings.serialize ? { entry, value: undefined } : this.withValue(entry);
    if (!kept) return;
    this.entries.set(key, { ...kept, until: performance.now() + left });
    if (!this.entries.has(key)) return;
    for (const tag in entry.tags) {
      const keys = this.keysByTag.get(tag);
      if (keys) keys.add(key);
      else this.keysByTag.set(tag, new Set([key]));
    }
  }

  delete(key: string): void {
    this.entries.delete(key);
  }

  deleteByTag(tag: string): void {
    this.keysByTag.get(tag)?.forEach((key) => this.entries.delete(key));
  }

  deleteMatching(matches: (key: string) => boolean): void {
    for (const key of this.entries.keys()) if (matches(key)) this.entries.delete(key);
  }

  distrust(informant: Informant): void {
    this.silent.add(informant);
    this.trusted = false;
    this.generation += 1;
    if (this.settings.whileAway === 0) return this.flush();
    this.awaySince ??= performance.now();
  }

  trust(informant: Informant): void {
    this.silent.delete(informant);
    this.generation += 1;
    // What is kept may be served until all is heard again.
    if (this.settings.whileAway === 0 || this.silent.size === 0) this.flush();
    this.trusted = this.silent.size === 0;
    if (this.trusted) this.awaySince = undefined;
  }

  private flush(): void {
    this.flushes += 1;
    this.entries.clear();
  }

  /** What cannot be read counts as absent, as it does in the store. */
  private withValue(entry: Entry): Kept | undefined {
    try {
      return { entry, value: this.valueOf(entry) };
    } catch {
      return undefined;
    }
  }

  private forgetTag(tag: string, key: string): void {
    const keys = this.keysByTag.get(tag);
    keys?.delete(key);
    if (keys?.size === 0) this.keysByTag.delete(tag);
  }
}
