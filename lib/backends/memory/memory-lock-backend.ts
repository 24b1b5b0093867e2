import type { CacheStore, CacheStoreProvider } from '../../contracts/cache-store.js';
import type {
  AcquireAnswer,
  AcquireRequest,
  AcquireSeveralRequest,
  Busy,
  KeepRequest,
  ListedNames,
  ListRequest,
  LockBackend,
  LockState,
  LockStore,
  LockTraits,
  MintRequest,
  ModuleContext,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
  TokenRange,
} from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import type { PrimitiveStoreProvider, PrimitiveStores } from '../../contracts/primitive-stores.js';
import { ownStore } from '../../contracts/store.js';
import { redisGlob } from '../../keys/redis-glob.js';
import { Listeners } from '../listeners.js';
import { ExpiringMap } from './expiring-map.js';
import { memoryCacheStore } from './memory-cache-store.js';
import { type MemoryLocks, MemoryPrimitives, type LeaseRequest } from './memory-primitives.js';
import { ReadersByKey } from './readers.js';

/**
 * Keeps locks in the memory of the process, and behaves as the Redis backend does: leases expire, only the owner can
 * renew and release, fencing tokens rise. For tests, and for applications of a single process.
 *
 * Modules exclude each other only if they are given the same instance.
 */
export function memory(): LockBackend {
  return new MemoryLockBackend();
}

/** The owner of a name that tickets read. */
const READERS = 'readers';
/** How many tokens are reserved at once for the callers of one process. */
const TOKENS = 128;

/** What the modules share that were given the same instance. */
class MemoryLockBackend implements LockBackend, CacheStoreProvider, PrimitiveStoreProvider {
  readonly name = 'memory';
  readonly traits: LockTraits = { lease: 'ttl', fencing: 'strict', leastLease: 1, writesAtOnce: true };
  readonly grants = new ExpiringMap<Grant>();
  readonly readers = new ReadersByKey();
  readonly labels = new ExpiringMap<string>();
  readonly listeners = new Listeners();
  private readonly primitives = new MemoryPrimitives((prefix) => new MemoryLockStore(this, { prefix }));
  private lastToken = 0;

  open(module: ModuleContext): LockStore {
    return ownStore(new MemoryLockStore(this, module, this.listeners.add(module)));
  }

  openCacheStore(): CacheStore {
    return memoryCacheStore();
  }

  openPrimitiveStores(prefix: string | undefined): PrimitiveStores {
    return this.primitives.open(prefix);
  }

  async ping(): Promise<void> {}

  async close(): Promise<void> {}

  reserve(count: number, leastToken = 0): TokenRange {
    const first = Math.max(this.lastToken + 1, Date.now() * 1_000, leastToken);
    this.lastToken = first + count - 1;
    return { first, count };
  }
}

/** The locks of one module. */
class MemoryLockStore implements LockStore, MemoryLocks {
  private readonly grants: ExpiringMap<Grant>;
  private readonly readers: ReadersByKey;
  /** What the keys of the module begin with. */
  private readonly beginning: string;

  constructor(
    private readonly shared: MemoryLockBackend,
    private readonly module: Partial<ModuleContext>,
    readonly stop: () => void = () => {},
  ) {
    this.grants = shared.grants;
    this.readers = shared.readers;
    this.beginning = `${module.prefix ?? ''}\u0000`;
  }

  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    return this.take(request, [request.name]);
  }

  async acquireSeveral(request: AcquireSeveralRequest): Promise<AcquireAnswer> {
    return this.take(request, request.names);
  }

  /** The names apart: what spreads a request into another costs a third of the time of a free lock. */
  take(request: LeaseRequest, names: readonly string[]): AcquireAnswer {
    const { ticket, ttl } = request;
    for (const name of names) {
      const key = this.beginning + name;
      const busy = this.busyFor(key, request);
      if (busy) return { status: 'busy', name, ...busy };
    }
    if (request.mode === 'read') return this.read(request, names);
    const tokens = this.shared.reserve(1, request.leastToken);
    const grant = { owner: ticket, fencingToken: tokens.first };
    for (const name of names) {
      const key = this.beginning + name;
      this.grants.set(key, grant, ttl);
      this.readers.get(key)?.leave(ticket);
    }
    return { status: 'granted', tokens, remaining: ttl, waiting: undefined };
  }

  async mint({ name, ticket, leastToken }: MintRequest): Promise<TokenRange | null> {
    const key = this.beginning + name;
    const readers = this.readers.get(key);
    if (readers?.remaining(ticket) !== undefined) {
      const token = this.shared.reserve(1, leastToken);
      readers.token = token.first;
      return token;
    }
    const grant = this.grants.get(key);
    if (grant?.owner !== ticket) return null;
    const tokens = this.shared.reserve(TOKENS, leastToken);
    grant.fencingToken = tokens.first + TOKENS - 1;
    return tokens;
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return requests.map(async ({ name, ticket, ttl }): Promise<RenewAnswer> => {
      const key = this.beginning + name;
      if (!this.owns(key, ticket)) return { status: 'not-owner' };
      if (!this.readers.get(key)?.prolong(ticket, ttl)) this.grants.prolong(key, ttl);
      return { status: 'renewed', remaining: this.remaining(key, ticket) };
    });
  }

  async release(request: TicketRequest): Promise<ReleaseAnswer> {
    return this.free(request);
  }

  free({ name, ticket }: TicketRequest): ReleaseAnswer {
    const key = this.beginning + name;
    const grant = this.grants.get(key);
    const readers = this.readers.get(key);
    readers?.leave(ticket);
    const read = readers?.remove(ticket);
    this.readers.forgetIfIdle(key);
    if (read) return { status: 'released', resent: false };
    if (grant?.owner === ticket) this.grants.delete(key);
    return { status: this.statusOf(key, grant, ticket), resent: false };
  }

  async keep(request: KeepRequest): Promise<ReleaseAnswer> {
    return this.cut(request);
  }

  cut({ name, ticket, rest }: KeepRequest): ReleaseAnswer {
    const key = this.beginning + name;
    if (this.owns(key, ticket)) {
      this.grants.shorten(key, rest);
      return { status: 'released', resent: false };
    }
    return { status: this.statusOf(key, this.grants.get(key), ticket), resent: false };
  }

  async downgrade({ name, ticket, ttl }: RenewRequest): Promise<void> {
    const key = this.beginning + name;
    if (this.grants.get(key)?.owner !== ticket) return;
    const readers = this.readers.of(key);
    readers.add(ticket, ttl);
    readers.token = this.shared.reserve(1).first;
    this.grants.delete(key);
  }

  async inspect({ name }: NameRequest): Promise<LockState | null> {
    const key = this.beginning + name;
    const readers = this.readers.get(key);
    if (readers?.reading) {
      const { token, tickets } = readers;
      return { owner: READERS, readers: tickets.length, ttl: readers.longest(), fencingToken: token, waiting: 0 };
    }
    const grant = this.grants.get(key);
    if (!grant) return null;
    const { owner, fencingToken } = grant;
    const label = this.shared.labels.get(this.beginning + processOf(owner));
    return {
      owner,
      ...(label !== undefined && { label }),
      ttl: this.grants.remaining(key) ?? 0,
      fencingToken,
      waiting: 0,
    };
  }

  async label(label: string, ttl: number): Promise<void> {
    const key = this.beginning + this.module.process;
    if (ttl === 0) this.shared.labels.delete(key);
    else this.shared.labels.set(key, label, ttl);
  }

  async forceRelease({ name }: NameRequest): Promise<string | readonly string[] | null> {
    const key = this.beginning + name;
    const readers = this.readers.get(key);
    const reading = readers?.tickets ?? [];
    for (const ticket of reading) readers?.remove(ticket);
    const grant = this.grants.get(key);
    if (reading.length === 0) this.grants.delete(key);
    const freed = reading.length > 0 ? reading : grant ? [grant.owner] : [];
    this.shared.listeners.lost(freed, new Error(`"${name}" was released by force`), 'taken');
    return reading.length > 0 ? reading : (grant?.owner ?? null);
  }

  async list({ pattern, cursor, limit }: ListRequest): Promise<ListedNames> {
    const { beginning } = this;
    const matches = redisGlob(pattern);
    const names = [...this.grants.keys(), ...this.readers.keys()]
      .filter((key) => key.startsWith(beginning))
      .map((key) => key.slice(beginning.length))
      .filter((name) => name > cursor && matches(name))
      .toSorted();
    const page = names.slice(0, limit);
    return { names: page, cursor: page.length < names.length ? (page.at(-1) ?? '') : '' };
  }

  left({ name, ticket }: TicketRequest): number {
    const key = this.beginning + name;
    return this.owns(key, ticket) ? this.remaining(key, ticket) : 0;
  }

  /** Lets a reader in at names that are not busy for it. */
  private read({ ticket, ttl, leastToken = 0 }: LeaseRequest, names: readonly string[]): AcquireAnswer {
    const all = names.map((name) => this.readers.of(this.beginning + name));
    const present = all.length === 1 && all[0]?.reading ? all[0].token : 0;
    const token = present > 0 && present >= leastToken ? present : this.shared.reserve(1, leastToken).first;
    for (const readers of all) {
      readers.token = token;
      if (readers.remaining(ticket) === undefined) readers.add(ticket, ttl);
    }
    const remaining = Math.min(...all.map((readers) => readers.remaining(ticket) ?? 0));
    return { status: 'granted', tokens: { first: token, count: 1 }, remaining, waiting: undefined };
  }

  /** Who keeps the ticket from the name, and for how long at most. Notes that it waits. */
  private busyFor(key: string, request: LeaseRequest): Pick<Busy, 'owner' | 'remaining'> | undefined {
    const { ticket, waits } = request;
    const grant = this.grants.get(key);
    if (grant?.owner === ticket) return undefined;
    const reads = request.mode === 'read';
    const readers = this.readers.get(key) ?? (reads && waits && grant ? this.readers.of(key) : undefined);
    if (readers?.remaining(ticket) !== undefined) return undefined;
    if (waits) readers?.wait(ticket, reads);
    if (grant) return { owner: grant.owner, remaining: this.grants.remaining(key) ?? 0 };
    if (!readers) return undefined;
    if (readers.reading && !reads) return { owner: READERS, remaining: readers.longest() };
    if (!readers.comesLater(ticket, reads)) return undefined;
    return readers.reading ? { owner: READERS, remaining: readers.longest() } : { owner: '', remaining: Infinity };
  }

  /** Milliseconds left of what the ticket owns or reads. */
  private remaining(key: string, ticket: string): number {
    return this.readers.get(key)?.remaining(ticket) ?? this.grants.remaining(key) ?? 0;
  }

  /** Whether the ticket owns or reads what the key stands for. */
  private owns(key: string, ticket: string): boolean {
    return this.grants.get(key)?.owner === ticket || this.readers.reads(key, ticket);
  }

  /** What a release by the ticket is answered where the key had this grant. */
  private statusOf(key: string, grant: Grant | undefined, ticket: string): ReleaseAnswer['status'] {
    if (grant?.owner === ticket) return 'released';
    return grant || this.readers.get(key)?.reading ? 'taken' : 'gone';
  }
}

interface Grant {
  readonly owner: string;
  fencingToken: number;
}
