import { LRUCache } from 'lru-cache';
import { onceRead } from '../../timing/clock.js';
import type { Entry } from './envelope.js';

export interface FirstLevelSettings {
  readonly max: number;
  readonly maxBytes: number;
  readonly ttl: number;
  readonly serialize: boolean;
  /** How long (ms) fresh values are served while the store fails, counted from the first missed message. */
  readonly whileAway: number;
  readonly bus: 'pubsub' | 'tracking';
}

/** A source of changes: the messages of the cache, and with `bus: 'tracking'` the store as well. */
type ChangeSource = 'messages' | 'tracking';

/** A value in the first level. */
export interface Kept {
  readonly entry: Entry;
  readonly value: unknown;
}

interface KeptUntil extends Kept {
  /** On the monotonic clock. `value` is set if `serialize` is off. */
  readonly until: number;
}

/** Roughly the bytes that an entry takes in addition to its payload. */
const OVERHEAD = 200;

/** How often (ms) it is noted that the sockets were read, and for how long (ms) values are answered after that. */
const [READ_PERIOD, LONGEST_UNREAD] = [500, 1_000];

/**
 * Values in the memory of the process, in front of Redis. While messages of changes may be missed, it is empty; with
 * `whileAway`, it keeps its values but serves them only if Redis fails.
 */
export class FirstLevel {
  private readonly entries: LRUCache<string, KeptUntil>;
  private readonly keysByTag = new Map<string, Set<string>>();
  /** The sources that report no changes at present. */
  private readonly silent: Set<ChangeSource>;
  private trusted = false;
  /**
   * When (monotonic, ms) the sockets had been read for sure. After a standstill of the process, messages of changes
   * have arrived that it has not read.
   */
  private readAt = 0;
  private timer: NodeJS.Timeout | undefined = undefined;
  /** Since when messages may be missed, on the monotonic clock. */
  private awaySince: number | undefined = undefined;
  /** Rises whenever messages may have been missed. */
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

  /** The value of the key, deserialized for each call unless `serialize` is off. */
  get(key: string): Kept | undefined {
    if (!this.trusted) return undefined;
    const kept = this.entries.get(key);
    if (!kept) return undefined;
    const now = performance.now();
    if (now - this.readAt > LONGEST_UNREAD) return undefined;
    if (now >= kept.until) {
      if (this.settings.whileAway === 0) this.entries.delete(key);
      return undefined;
    }
    return this.answer(kept);
  }

  /**
   * A fresh value to serve while the store fails, for up to `whileAway` ms although messages of changes may be missed.
   */
  spare(key: string): Kept | undefined {
    const { whileAway } = this.settings;
    if (whileAway === 0 || performance.now() >= (this.awaySince ?? Infinity) + whileAway) return undefined;
    const kept = this.entries.get(key);
    return kept && Date.now() < kept.entry.expiresAt ? this.answer(kept) : undefined;
  }

  /**
   * Keeps the entry, at most until its own `ttl` ends. The payload must not be a slice of a client's reply, because
   * that would keep the whole reply in memory.
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

  distrust(source: ChangeSource): void {
    this.silent.add(source);
    this.trusted = false;
    clearInterval(this.timer);
    this.generation += 1;
    if (this.settings.whileAway === 0) return this.flush();
    this.awaySince ??= performance.now();
  }

  trust(source: ChangeSource): void {
    this.silent.delete(source);
    this.generation += 1;
    // With whileAway, the values are served until every source reports again.
    if (this.settings.whileAway === 0 || this.silent.size === 0) this.flush();
    this.trusted = this.silent.size === 0;
    if (!this.trusted) return;
    this.awaySince = undefined;
    this.readAt = performance.now();
    clearInterval(this.timer);
    this.timer = setInterval(() => onceRead(this.noteRead), READ_PERIOD).unref();
  }

  private readonly noteRead = (): void => {
    this.readAt = performance.now();
  };

  private flush(): void {
    this.flushes += 1;
    this.entries.clear();
  }

  private answer(kept: Kept): Kept | undefined {
    return this.settings.serialize ? this.withValue(kept.entry) : kept;
  }

  /** A value that cannot be read counts as absent, as it does in the store. */
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
