import type { CacheStoreProvider } from '../../contracts/cache-store-provider.js';
import type { CacheStore } from '../../contracts/cache-store.js';
import { ExpiringMap } from './expiring-map.js';
import { memoryCacheStore } from './memory-cache-store.js';
import type {
  AcquireAnswer,
  AcquireRequest,
  KeepRequest,
  LabelRequest,
  LockBackend,
  LockBackendCapabilities,
  LockState,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
} from '../../contracts/lock-backend.js';

interface Entry {
  owner: string;
  fencingToken: number;
  expiresAt: number;
}

const FIRST_SWEEP = 1_024;

/**
 * Locks within one process, with the semantics of the Redis backend: leases that end by themselves, owner checks,
 * tokens that rise. For tests, and for applications of a single process.
 *
 * Modules that are given the same instance exclude each other; every instance is a world of its own.
 */
export function memory(): LockBackend {
  return new MemoryLockBackend();
}

class MemoryLockBackend implements LockBackend, CacheStoreProvider {
  readonly name = 'memory';
  readonly capabilities: LockBackendCapabilities = {
    lease: 'ttl',
    fencing: 'strict',
    push: false,
    severalKeys: true,
    serverQueue: false,
  };
  private readonly entries = new Map<string, Entry>();
  private readonly labels = new ExpiringMap<string>();
  private lastToken = 0;
  private sweepAt = FIRST_SWEEP;

  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const { names, ticket, ttl } = request;
    for (const name of names) {
      const entry = this.live(keyOf(request.prefix, name));
      if (entry && entry.owner !== ticket) {
        return { granted: false, name, owner: entry.owner, remaining: entry.expiresAt - performance.now() };
      }
    }
    this.sweepWhenGrown();
    this.lastToken = Math.max(this.lastToken + 1, Date.now() * 1_000);
    for (const name of names) {
      const entry = { owner: ticket, fencingToken: this.lastToken, expiresAt: performance.now() + ttl };
      this.entries.set(keyOf(request.prefix, name), entry);
    }
    return { granted: true, fencingToken: this.lastToken };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return requests.map(async (request): Promise<RenewAnswer> => {
      const entries = this.owned(request);
      if (entries.length < request.names.length) return { status: 'not-owner' };
      const now = performance.now();
      for (const entry of entries) entry.expiresAt = Math.max(entry.expiresAt, now + request.ttl);
      return { status: 'renewed', remaining: Math.min(...entries.map((entry) => entry.expiresAt)) - now };
    });
  }

  async release(request: TicketRequest): Promise<ReleaseAnswer> {
    let status: ReleaseAnswer['status'] = 'released';
    for (const name of request.names) {
      const key = keyOf(request.prefix, name);
      const entry = this.live(key);
      if (entry?.owner === request.ticket) this.entries.delete(key);
      else if (entry) status = 'taken';
      else if (status === 'released') status = 'gone';
    }
    return { status, resent: false };
  }

  async keep({ rest, ...request }: KeepRequest): Promise<ReleaseAnswer> {
    const entries = this.owned(request);
    const now = performance.now();
    for (const entry of entries) entry.expiresAt = Math.min(entry.expiresAt, now + rest);
    if (entries.length === request.names.length) return { status: 'released', resent: false };
    const taken = request.names.some((name) => {
      const entry = this.live(keyOf(request.prefix, name));
      return entry && entry.owner !== request.ticket;
    });
    return { status: taken ? 'taken' : 'gone', resent: false };
  }

  async inspect({ prefix, name }: NameRequest): Promise<LockState | null> {
    const entry = this.live(keyOf(prefix, name));
    if (!entry) return null;
    const { owner, fencingToken, expiresAt } = entry;
    const label = this.labels.get(keyOf(prefix, owner.slice(0, owner.lastIndexOf(':'))));
    return {
      owner,
      ...(label !== undefined && { label }),
      ttl: expiresAt - performance.now(),
      fencingToken,
      waiting: 0,
    };
  }

  async label({ prefix, process, label, ttl }: LabelRequest): Promise<void> {
    if (ttl === 0) this.labels.delete(keyOf(prefix, process));
    else this.labels.set(keyOf(prefix, process), label, ttl);
  }

  async forceRelease({ prefix, name }: NameRequest): Promise<string | null> {
    const key = keyOf(prefix, name);
    const entry = this.live(key);
    this.entries.delete(key);
    return entry?.owner ?? null;
  }

  openCacheStore(): CacheStore {
    return memoryCacheStore();
  }

  async ping(): Promise<void> {}

  async close(): Promise<void> {}

  private owned({ prefix, names, ticket }: TicketRequest): Entry[] {
    return names.map((name) => this.live(keyOf(prefix, name))).filter((entry) => entry?.owner === ticket) as Entry[];
  }

  private live(key: string): Entry | undefined {
    const entry = this.entries.get(key);
    if (!entry || entry.expiresAt > performance.now()) return entry;
    this.entries.delete(key);
    return undefined;
  }

  /**
   * Leases that ended unreleased and were never asked for again: swept when the map has doubled, so the cost is O(1).
   */
  private sweepWhenGrown(): void {
    if (this.entries.size < this.sweepAt) return;
    for (const key of this.entries.keys()) this.live(key);
    this.sweepAt = Math.max(FIRST_SWEEP, this.entries.size * 2);
  }
}

function keyOf(prefix: string | undefined, name: string): string {
  return prefix === undefined ? name : `${prefix}\u0000${name}`;
}
