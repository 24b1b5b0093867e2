// What the cache store in memory keeps beside values: sets, bit fields (for Bloom filters) and scheduled deletions. All
// of them answer over one `MemoryConnection`, which stands at the end.

import type {
  BitsRequest,
  CacheBits,
  CacheExpiringSets,
  CacheListener,
  CacheSets,
  KeyRequest,
  RebuildRequest,
  ScheduledDeletions,
} from '../../contracts/cache-store.js';
import { ExpiringMap } from './expiring-map.js';

export class MemoryCacheSets implements CacheSets {
  private readonly sets = new ExpiringMap<Set<string>>();

  constructor(private readonly connection: MemoryConnection) {}

  add(key: string, members: readonly string[], ttl: number): Promise<number> {
    return this.connection.run(() => {
      const set = this.sets.get(key) ?? new Set<string>();
      const before = set.size;
      for (const member of members) set.add(member);
      if (set.size > 0) this.sets.set(key, set, ttl);
      return set.size - before;
    });
  }

  remove(key: string, members: readonly string[]): Promise<number> {
    return this.connection.run(() => {
      const set = this.sets.get(key);
      const removed = members.filter((member) => set?.delete(member)).length;
      if (set?.size === 0) this.sets.delete(key);
      return removed;
    });
  }

  has(key: string, member: string): Promise<boolean> {
    return this.connection.run(() => this.sets.get(key)?.has(member) ?? false);
  }

  members(key: string): Promise<readonly string[]> {
    return this.connection.run(() => [...(this.sets.get(key) ?? [])]);
  }
}

/** `ExpiringMembers` as calls over the connection. */
export class MemoryCacheExpiringSets implements CacheExpiringSets {
  private readonly sets = new ExpiringMembers();

  constructor(private readonly connection: MemoryConnection) {}

  add(key: string, members: readonly string[], ttl: number): Promise<number> {
    return this.connection.run(() => members.filter((member) => this.sets.add(key, member, ttl)).length);
  }

  remove(key: string, members: readonly string[]): Promise<number> {
    return this.connection.run(() => members.filter((member) => this.sets.remove(key, member)).length);
  }

  has(key: string, member: string): Promise<boolean> {
    return this.connection.run(() => this.sets.has(key, member));
  }

  members(key: string): Promise<readonly string[]> {
    return this.connection.run(() => this.sets.members(key));
  }

  size(key: string): Promise<number> {
    return this.connection.run(() => this.sets.size(key));
  }
}

/** Sets whose members expire one by one. Times are in ms. */
export class ExpiringMembers {
  /** A set expires with the last of its members. */
  private readonly sets = new ExpiringMap<ExpiringMap<true>>();

  /** Makes the member expire `ttl` from now; `false` when it was a member already. */
  add(key: string, member: string, ttl: number): boolean {
    const set = this.sets.get(key) ?? new ExpiringMap<true>();
    const isNew = !set.get(member);
    set.set(member, true, ttl);
    this.sets.set(key, set, Math.max(ttl, this.sets.remaining(key) ?? 0));
    return isNew;
  }

  /** Keeps the member for at least `ttl` from now; `false` when it is not a member. */
  prolong(key: string, member: string, ttl: number): boolean {
    const found = this.sets.get(key)?.prolong(member, ttl) ?? false;
    if (found) this.sets.prolong(key, ttl);
    return found;
  }

  /** `false` when it was not a member. */
  remove(key: string, member: string): boolean {
    const set = this.sets.get(key);
    if (!set?.get(member)) return false;
    set.delete(member);
    if (set.size === 0) this.sets.delete(key);
    return true;
  }

  has(key: string, member: string): boolean {
    return this.sets.get(key)?.get(member) ?? false;
  }

  members(key: string): string[] {
    return [...(this.sets.get(key)?.keys() ?? [])];
  }

  size(key: string): number {
    return this.sets.get(key)?.size ?? 0;
  }
}

/** Bit fields, and the ones that are being rebuilt beside them. */
export class MemoryCacheBits implements CacheBits {
  private readonly fields = new ExpiringMap<BitField>();
  private readonly rebuilds = new ExpiringMap<Rebuild>();
  private readonly lastRebuilders = new ExpiringMap<string>();

  constructor(private readonly connection: MemoryConnection) {}

  add({ key, ttl, positions }: BitsRequest & { readonly positions: readonly number[] }): Promise<void> {
    return this.connection.run(() => {
      this.fields.get(key)?.set(positions);
      this.rebuilds.get(key)?.bits.set(positions);
      this.keep(key, ttl);
    });
  }

  has({
    key,
    ttl,
    lists,
  }: BitsRequest & { readonly lists: readonly (readonly number[])[] }): Promise<readonly boolean[] | null> {
    return this.connection.run(() => {
      this.keep(key, ttl);
      const bits = this.fields.get(key);
      return bits ? lists.map((positions) => bits.has(positions)) : null;
    });
  }

  beginRebuild({ key, token, lease, size }: RebuildRequest & { readonly size: number }): Promise<boolean> {
    return this.connection.run(() => {
      const rebuild = this.rebuilds.get(key);
      if (!rebuild) this.rebuilds.set(key, { token, bits: new BitField(size) }, lease);
      return !rebuild || rebuild.token === token;
    });
  }

  addToRebuild({
    key,
    token,
    lease,
    positions,
  }: RebuildRequest & { readonly positions: readonly number[] }): Promise<boolean> {
    return this.connection.run(() => {
      const bits = this.rebuilt(key, token);
      bits?.set(positions);
      return bits !== undefined && this.rebuilds.expire(key, lease);
    });
  }

  finishRebuild({ key, ttl, token }: BitsRequest & { readonly token: string }): Promise<boolean> {
    return this.connection.run(() => {
      const bits = this.rebuilt(key, token);
      if (!bits) return !this.rebuilds.get(key) && this.lastRebuilders.get(key) === token;
      this.rebuilds.delete(key);
      this.fields.set(key, bits, ttl);
      this.lastRebuilders.set(key, token, REBUILDER_MEMORY);
      return true;
    });
  }

  dropRebuild({ key, token }: KeyRequest & { readonly token: string }): Promise<void> {
    return this.connection.run(() => {
      if (this.rebuilt(key, token)) this.rebuilds.delete(key);
    });
  }

  clear(key: string): Promise<void> {
    return this.connection.run(() => {
      for (const map of [this.fields, this.rebuilds, this.lastRebuilders]) map.delete(key);
    });
  }

  private rebuilt(key: string, token: string): BitField | undefined {
    const rebuild = this.rebuilds.get(key);
    return rebuild?.token === token ? rebuild.bits : undefined;
  }

  /** Keeps the bits for at least half of `ttl` from now. */
  private keep(key: string, ttl: number): void {
    if ((this.fields.remaining(key) ?? Infinity) < ttl / 2) this.fields.expire(key, ttl);
  }
}

/** How long (ms) the token of a finished rebuild is kept, so that a repeated request gets the same answer. */
const REBUILDER_MEMORY = 60_000;

interface Rebuild {
  readonly token: string;
  readonly bits: BitField;
}

/** A bit string that grows up to the highest position set, as in Redis. */
class BitField {
  private bytes: Uint8Array;

  constructor(size: number) {
    this.bytes = new Uint8Array(Math.ceil(size / 8));
  }

  set(positions: readonly number[]): void {
    for (const position of positions) {
      const byte = position >>> 3;
      if (byte >= this.bytes.length) this.grow(byte + 1);
      this.bytes[byte] = (this.bytes[byte] ?? 0) | (1 << (position & 7));
    }
  }

  has(positions: readonly number[]): boolean {
    return positions.every((position) => ((this.bytes[position >>> 3] ?? 0) & (1 << (position & 7))) !== 0);
  }

  private grow(length: number): void {
    const grown = new Uint8Array(length);
    grown.set(this.bytes);
    this.bytes = grown;
  }
}

/** Deletions that are carried out later, by whichever process claims them. */
export class MemoryScheduledDeletions implements ScheduledDeletions {
  private readonly deletions = new Map<string, Deletion>();

  constructor(private readonly connection: MemoryConnection) {}

  schedule(names: readonly string[], delay: number): Promise<void> {
    return this.connection.run(() => {
      const dueAt = performance.now() + delay;
      for (const name of names) {
        const known = this.deletions.get(name);
        if (!known || known.claimed || known.dueAt < dueAt) this.deletions.set(name, { dueAt, claimed: false });
      }
      this.connection.tell((listener) => listener.onDeletionScheduled(delay));
    });
  }

  claim(limit: number, claim: number): Promise<{ readonly names: readonly string[]; readonly next: number | null }> {
    return this.connection.run(() => {
      const now = performance.now();
      const inOrder = [...this.deletions].toSorted(([, one], [, other]) => one.dueAt - other.dueAt);
      const due = inOrder.filter(([, { dueAt }]) => dueAt <= now);
      const names = due.slice(0, limit).map(([name]) => name);
      for (const name of names) this.deletions.set(name, { dueAt: now + claim, claimed: true });
      return { names, next: this.untilNext(now) };
    });
  }

  renew(names: readonly string[], claim: number): Promise<void> {
    return this.connection.run(() => {
      const dueAt = performance.now() + claim;
      for (const name of names)
        if (this.deletions.get(name)?.claimed) this.deletions.set(name, { dueAt, claimed: true });
    });
  }

  done(names: readonly string[]): Promise<void> {
    return this.connection.run(() => {
      for (const name of names) if (this.deletions.get(name)?.claimed) this.deletions.delete(name);
    });
  }

  private untilNext(now: number): number | null {
    let next: number | null = null;
    for (const { dueAt } of this.deletions.values()) next = Math.max(0, Math.min(next ?? Infinity, dueAt - now));
    return next;
  }
}

interface Deletion {
  readonly dueAt: number;
  /** Whether a process carries it out now. If it does not finish by `dueAt`, the deletion is due again. */
  readonly claimed: boolean;
}

/**
 * Imitates the connection to a server: answers calls and delivers messages asynchronously and in order, until it is
 * closed.
 */
export class MemoryConnection {
  private readonly listeners: CacheListener[] = [];
  private closed = false;

  async run<T>(step: () => T | Promise<T>): Promise<T> {
    if (this.closed) throw new Error('The cache store in memory is closed: the application has ended');
    return step();
  }

  listen(listener: CacheListener): void {
    this.listeners.push(listener);
    this.deliver(() => listener.onConnected());
  }

  tell(message: (listener: CacheListener) => void): void {
    for (const listener of this.listeners) this.deliver(() => message(listener));
  }

  close(): void {
    this.closed = true;
  }

  /** Uses a promise, because the fake timers of test runners replace `queueMicrotask`. */
  private deliver(message: () => void): void {
    void Promise.resolve().then(() => {
      if (!this.closed) message();
    });
  }
}
