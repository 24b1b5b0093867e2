import type { BitsRequest, CacheBits, KeyRequest, RebuildRequest } from '../../../contracts/cache-store.js';
import { ExpiringMap } from '../expiring-map.js';
import type { MemoryConnection } from './memory-connection.js';

interface Rebuild {
  readonly token: string;
  readonly bits: BitField;
}

/** How long (ms) the token of a finished rebuild is kept, so that a repeated request gets the same answer. */
const REBUILDER_MEMORY = 60_000;

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
