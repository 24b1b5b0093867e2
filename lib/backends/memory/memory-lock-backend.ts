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

interface Grant {
  readonly owner: string;
  readonly fencingToken: number;
}

/**
 * Keeps locks in the memory of the process, with the semantics of the Redis backend: leases that expire, owner checks,
 * fencing tokens that rise. For tests, and for applications of a single process.
 *
 * Modules exclude each other only where they are given the same instance.
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
  private readonly grants = new ExpiringMap<Grant>();
  private readonly labels = new ExpiringMap<string>();
  private lastToken = 0;

  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const { names, ticket, ttl } = request;
    for (const name of names) {
      const key = keyOf(request.prefix, name);
      const grant = this.grants.get(key);
      if (grant && grant.owner !== ticket) {
        return { granted: false, name, owner: grant.owner, remaining: this.grants.remaining(key) ?? 0 };
      }
    }
    this.lastToken = Math.max(this.lastToken + 1, Date.now() * 1_000);
    const grant = { owner: ticket, fencingToken: this.lastToken };
    for (const name of names) this.grants.set(keyOf(request.prefix, name), grant, ttl);
    return { granted: true, fencingToken: this.lastToken };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return requests.map(async (request): Promise<RenewAnswer> => {
      const keys = this.owned(request);
      if (keys.length < request.names.length) return { status: 'not-owner' };
      for (const key of keys) this.grants.prolong(key, request.ttl);
      return { status: 'renewed', remaining: Math.min(...keys.map((key) => this.grants.remaining(key) ?? 0)) };
    });
  }

  async release(request: TicketRequest): Promise<ReleaseAnswer> {
    let status: ReleaseAnswer['status'] = 'released';
    for (const name of request.names) {
      const key = keyOf(request.prefix, name);
      const grant = this.grants.get(key);
      if (grant?.owner === request.ticket) this.grants.delete(key);
      else if (grant) status = 'taken';
      else if (status === 'released') status = 'gone';
    }
    return { status, resent: false };
  }

  async keep({ rest, ...request }: KeepRequest): Promise<ReleaseAnswer> {
    const keys = this.owned(request);
    for (const key of keys) this.grants.shorten(key, rest);
    if (keys.length === request.names.length) return { status: 'released', resent: false };
    const taken = request.names.some((name) => {
      const grant = this.grants.get(keyOf(request.prefix, name));
      return grant && grant.owner !== request.ticket;
    });
    return { status: taken ? 'taken' : 'gone', resent: false };
  }

  async inspect({ prefix, name }: NameRequest): Promise<LockState | null> {
    const key = keyOf(prefix, name);
    const grant = this.grants.get(key);
    if (!grant) return null;
    const { owner, fencingToken } = grant;
    const label = this.labels.get(keyOf(prefix, owner.slice(0, owner.lastIndexOf(':'))));
    return {
      owner,
      ...(label !== undefined && { label }),
      ttl: this.grants.remaining(key) ?? 0,
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
    const grant = this.grants.get(key);
    this.grants.delete(key);
    return grant?.owner ?? null;
  }

  openCacheStore(): CacheStore {
    return memoryCacheStore();
  }

  async ping(): Promise<void> {}

  async close(): Promise<void> {}

  /** The keys whose grant is the ticket's. */
  private owned({ prefix, names, ticket }: TicketRequest): string[] {
    return names.map((name) => keyOf(prefix, name)).filter((key) => this.grants.get(key)?.owner === ticket);
  }
}

function keyOf(prefix: string | undefined, name: string): string {
  return prefix === undefined ? name : `${prefix}\u0000${name}`;
}
