import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type CacheListener,
  type CacheStore,
  type CommitRequest,
  type DeleteMatchingRequest,
  expiredSoftly,
  prolonged,
  type InvalidateRequest,
  type KeyRequest,
  type KeyState,
  type LeaseAnswer,
  type LeaseRequest,
  type LoadRequest,
  type SetRequest,
  type StoredData,
  type TagState,
  type TagVersion,
} from '../../contracts/cache-store.js';
import { ownStore } from '../../contracts/store.js';
import { redisGlob } from '../../keys/redis-glob.js';
import type { BoundedValues } from './bounded-values.js';
import { ExpiringMap } from './expiring-map.js';
import {
  ExpiringMembers,
  MemoryCacheBits,
  MemoryCacheExpiringSets,
  MemoryCacheSets,
  MemoryConnection,
  MemoryScheduledDeletions,
} from './memory-cache-collections.js';

/**
 * A cache in the memory of the process that behaves as the Redis store does: values expire, and an invalidation takes
 * the lease from a load under way. For tests, and for applications of a single process. Keeps every value until it
 * expires, unless `values` is a `BoundedValues`.
 *
 * Modules that are given the same instance share its keys and its messages.
 */
export function memoryCacheStore(values: ExpiringMap<Buffer> | BoundedValues = new ExpiringMap()): CacheStore {
  return new MemoryCacheStore(values);
}

class MemoryCacheStore implements CacheStore {
  readonly name = 'memory';
  private readonly connection = new MemoryConnection();
  readonly sets = new MemoryCacheSets(this.connection);
  readonly expiringSets = new MemoryCacheExpiringSets(this.connection);
  readonly bits = new MemoryCacheBits(this.connection);
  readonly deletions = new MemoryScheduledDeletions(this.connection);

  private readonly leases = new ExpiringMap<Lease>();
  private readonly barriers = new ExpiringMembers();
  private readonly tags = new MemoryCacheTags(() => this.moment());
  private lastMoment = 0;

  constructor(private readonly values: ExpiringMap<Buffer> | BoundedValues) {
    ownStore(this);
  }

  listen(listener: CacheListener): void {
    this.connection.listen(listener);
  }

  read(key: string): Promise<Buffer | null> {
    return this.connection.run(() => {
      const value = this.values.get(key);
      return value ? Buffer.from(value) : null;
    });
  }

  lease(request: LeaseRequest): Promise<LeaseAnswer> {
    return this.connection.run(() => this.grant(request));
  }

  readOrLease(request: Omit<LeaseRequest, 'refresh' | 'seen'>): Promise<Buffer | LeaseAnswer> {
    return this.connection.run((): Buffer | LeaseAnswer => {
      const value = this.values.get(request.key);
      return value ? Buffer.from(value) : this.grant({ ...request, refresh: false });
    });
  }

  commit({ key, token, data, ttl }: CommitRequest): Promise<boolean> {
    return this.connection.run(() => {
      if (this.leases.get(key)?.token !== token) return false;
      this.endLoad(key);
      this.values.set(key, copyOf(data), ttl);
      return true;
    });
  }

  renew({ key, token, lease }: LoadRequest & { readonly lease: number }): Promise<boolean> {
    return this.connection.run(() => this.leases.get(key)?.token === token && this.leases.prolong(key, lease));
  }

  release({ key, token, outdated }: LoadRequest & { readonly outdated?: boolean }): Promise<void> {
    return this.connection.run(() => {
      if (this.leases.get(key)?.token !== token) return;
      if (!outdated) return this.endLoad(key);
      this.values.delete(key);
      this.changed(key);
    });
  }

  invalidate({ key, barrier, lift, staleSince }: InvalidateRequest): Promise<boolean> {
    return this.connection.run(() => {
      const value = this.values.get(key);
      const stale = value && staleSince !== undefined ? expiredSoftly(value, staleSince) : undefined;
      if (stale) this.values.set(key, stale, this.values.remaining(key) ?? 0);
      else this.values.delete(key);
      if (lift !== undefined) this.barriers.remove(key, lift);
      if (barrier) this.barriers.add(key, barrier.token, barrier.ttl);
      this.changed(key);
      return value !== undefined;
    });
  }

  take(key: string): Promise<Buffer | null> {
    return this.connection.run(() => {
      const value = this.values.get(key) ?? null;
      this.values.delete(key);
      this.changed(key);
      return value;
    });
  }

  renewBarrier({ key, token, ttl }: KeyRequest & { readonly token: string; readonly ttl: number }): Promise<boolean> {
    return this.connection.run(() => this.barriers.prolong(key, token, ttl));
  }

  /** Ignores `within`, because it stores at once. */
  set({ key, data, ttl, ifAbsent, over }: SetRequest): Promise<boolean> {
    return this.connection.run(() => {
      const kept = ifAbsent ? this.values.get(key) : undefined;
      if ((kept && !over?.equals(kept)) || this.barriers.size(key) > 0) return false;
      this.values.set(key, copyOf(data), ttl);
      this.changed(key);
      return true;
    });
  }

  increment({ key, by, ttl }: KeyRequest & { readonly by: number; readonly ttl: number }): Promise<number> {
    return this.connection.run(() => {
      const sum = sumOf(key, this.values.get(key), by);
      this.values.set(key, Buffer.from(String(sum)), this.values.remaining(key) ?? ttl);
      // Sends no change to first levels, which never hold numbers.
      this.endLoad(key);
      return Number(sum);
    });
  }

  expire({ key, ttl }: KeyRequest & { readonly ttl: number }): Promise<boolean> {
    return this.connection.run(() => {
      const now = Date.now();
      const value = this.values.get(key);
      const longer = value && prolonged(value, Math.ceil(now + ttl), this.values.remaining(key) ?? 0, now);
      if (longer) this.values.set(key, longer[0], ttl + longer[1]);
      const found = longer !== undefined || this.values.expire(key, ttl);
      // A first level may hold it for longer.
      if (found) this.connection.tell((listener) => listener.onInvalidated(key));
      return found;
    });
  }

  ttl(key: string): Promise<number | null> {
    return this.connection.run(() => this.values.remaining(key) ?? null);
  }

  inspect(key: string): Promise<KeyState> {
    return this.connection.run(() => {
      const value = this.values.get(key);
      return {
        value: value ? { head: headOf(value), bytes: value.length, ttl: this.values.remaining(key) ?? 0 } : null,
        lease: this.leases.remaining(key) ?? null,
        barrier: this.barriers.size(key) > 0,
      };
    });
  }

  beginTags(tags: readonly string[], ttl: number): Promise<readonly TagVersion[]> {
    return this.connection.run(() => this.tags.begin(tags, ttl));
  }

  readTags(tags: readonly string[]): Promise<readonly TagState[]> {
    return this.connection.run(() => this.tags.read(tags));
  }

  lastTagInvalidation(): Promise<number | null> {
    return this.connection.run(() => this.tags.lastInvalidation);
  }

  invalidateTag(tag: string, softly = false): Promise<void> {
    return this.connection.run(() => {
      this.tags.invalidate(tag, softly);
      this.connection.tell((listener) => listener.onTagInvalidated(tag));
    });
  }

  deleteMatching({ match, batch, spares }: DeleteMatchingRequest): Promise<number> {
    return this.connection.run(async () => {
      const matches = 'prefix' in match ? (key: string) => key.startsWith(match.prefix) : redisGlob(match.pattern);
      for (const key of this.leases.keys()) if (matches(key)) this.leases.delete(key);
      let deleted = 0;
      let seen = 0;
      // Values that are stored during the deletion follow the present ones in the map.
      const there = this.values.size;
      for (const key of this.values.keys()) {
        if (matches(key) && !spares?.(key) && this.values.get(key)) {
          this.values.delete(key);
          deleted++;
        }
        if (++seen >= there) break;
        if (seen % batch === 0) await nextTurn();
      }
      this.connection.tell((listener) => listener.onPrefixInvalidated('prefix' in match ? match.prefix : ''));
      return deleted;
    });
  }

  ping(): Promise<unknown> {
    return this.connection.run(() => 'PONG');
  }

  close(): void {
    this.connection.close();
  }

  /** The time in µs, greater with each call. */
  private moment(): number {
    return (this.lastMoment = Math.max(this.lastMoment + 1, Date.now() * 1_000));
  }

  private grant({ key, token, lease, refresh, seen, waits }: LeaseRequest): LeaseAnswer {
    const value = this.values.get(key);
    if (value && (!refresh || !beginsWith(value, seen))) return { status: 'hit' };
    if (this.barriers.size(key) > 0) return { status: 'barrier' };
    const held = this.leases.get(key);
    const remaining = this.leases.remaining(key) ?? 0;
    if (held && held.token !== token) {
      held.awaited ||= waits;
      return { status: 'busy', remaining };
    }
    const granted = held ?? { token, at: this.moment(), awaited: false };
    this.leases.set(key, granted, Math.max(lease, remaining));
    return { status: 'leased', at: granted.at };
  }

  private endLoad(key: string): void {
    const held = this.leases.get(key);
    this.leases.delete(key);
    if (held?.awaited) this.connection.tell((listener) => listener.onLoadEnded(key));
  }

  /**
   * Takes the lease from the load under way, and notifies every listener, which also wakes those who wait for that
   * load.
   */
  private changed(key: string): void {
    this.leases.delete(key);
    this.connection.tell((listener) => listener.onInvalidated(key));
  }
}

interface Lease {
  readonly token: string;
  readonly at: number;
  /** Whether another load waits for its end. */
  awaited: boolean;
}

/** The versions of tags. `moment` returns the time in µs, greater with each call. */
class MemoryCacheTags {
  private readonly tags = new ExpiringMap<Tag>();
  lastInvalidation: number | null = null;

  constructor(private readonly moment: () => number) {}

  begin(tags: readonly string[], ttl: number): readonly TagVersion[] {
    return tags.map((tag) => {
      if (!this.tags.prolong(tag, ttl)) this.tags.set(tag, { version: this.moment(), begun: true }, ttl);
      const { version, begun } = this.tags.get(tag) as Tag;
      return { version, begun };
    });
  }

  read(tags: readonly string[]): readonly TagState[] {
    return tags.map((tag) => {
      const { version = null, least } = this.tags.get(tag) ?? {};
      return version === null || least === undefined ? version : { version, least };
    });
  }

  invalidate(tag: string, softly: boolean): void {
    const last = this.tags.get(tag);
    const version = this.moment();
    const least = softly ? (last?.least ?? last?.version) : undefined;
    this.lastInvalidation = version;
    const memory = last ? TAG_MEMORY : UNUSED_TAG_MEMORY;
    this.tags.set(tag, { version, begun: false, least }, Math.max(memory, this.tags.remaining(tag) ?? 0));
  }
}

/** How long (ms) the version of an invalidated tag is kept at least: longer than a loader may run. */
const TAG_MEMORY = 24 * 60 * 60 * 1_000;
/** The same for a tag of no value: a load with that tag compares with the last invalidation of any tag. */
const UNUSED_TAG_MEMORY = 10 * 60 * 1_000;

interface Tag extends TagVersion {
  /** Values stored with a version from this one on are stale; set only if the last invalidation was a soft expiry. */
  readonly least?: number | undefined;
}

/** Adds as INCRBY of Redis does: 64-bit integers in plain decimals. @throws Error as Redis answers it */
function sumOf(key: string, value: Buffer | undefined, by: number): bigint {
  const text = value?.toString() ?? '0';
  if (!/^(0|-?[1-9]\d*)$/.test(text) || !fits(BigInt(text))) {
    const shown = JSON.stringify(text.slice(0, 50));
    throw refusal(
      `Cannot increment "${key}": its value ${shown} is not an integer of 64 bits; delete it, or set a number`,
    );
  }
  const sum = BigInt(text) + BigInt(by);
  if (!fits(sum)) throw refusal(`Cannot increment "${key}" by ${by}: ${text} + ${by} would overflow 64 bits`);
  return sum;
}

function fits(number: bigint): boolean {
  return BigInt.asIntN(64, number) === number;
}

/** An error with the name that ioredis gives to errors that the server answered: it counts as an answer. */
export function refusal(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}

/** Copies the bytes, because the caller may change them. */
function copyOf(data: StoredData): Buffer {
  return typeof data === 'string' ? Buffer.from(data) : Buffer.from(data);
}

/** Copies what the value begins with, up to and with its first line feed. */
function headOf(value: Buffer): Buffer {
  const end = value.indexOf('\n');
  return Buffer.from(end === -1 ? value : value.subarray(0, end + 1));
}

function beginsWith(value: Buffer, beginning: StoredData = ''): boolean {
  const expected = Buffer.from(beginning as string);
  return value.subarray(0, expected.length).equals(expected);
}
