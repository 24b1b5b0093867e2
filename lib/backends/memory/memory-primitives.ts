import type {
  AcquireAnswer,
  AcquireRequest,
  KeepRequest,
  ReleaseAnswer,
  TicketRequest,
} from '../../contracts/lock-requests.js';
import type { EnqueueRequest } from '../../contracts/lock-queue.js';
import {
  type BeginRequest,
  type EndRunRequest,
  type EnterAnswer,
  type EnterRequest,
  type EnterRunAnswer,
  type EnterRunRequest,
  type HitAnswer,
  type HitRequest,
  type ForgetAttemptRequest,
  type IdempotencyRecord,
  type IdempotencyStore,
  type KeepResultRequest,
  type LatchListener,
  type LatchState,
  type LatchStore,
  type LeaveAnswer,
  type LeaveRequest,
  type LeaveRunAnswer,
  type LeaveRunRequest,
  type PrimitiveStores,
  type RateLimitStore,
  RECORD_TTL,
  type RunRecord,
  type RunRecords,
  type RunRequest,
  type TakeAnswer,
  type TakeRequest,
} from '../../contracts/primitive-stores.js';
import { ownStore } from '../../contracts/store.js';
import { ExpiringMap } from './expiring-map.js';
import { MemorySemaphores } from './memory-semaphores.js';

/** Asks for one name or more. */
export type LeaseRequest = Omit<AcquireRequest, 'name'>;

/** The locks of the backend, whose answers come at once: a primitive does more in the same step. */
export interface MemoryLocks {
  take(request: LeaseRequest, names: readonly string[]): AcquireAnswer;
  /** As `release`. */
  free(request: TicketRequest): ReleaseAnswer;
  /** As `keep`. */
  cut(request: KeepRequest): ReleaseAnswer;
  /** Milliseconds left of what the ticket owns; 0 if it owns nothing. */
  left(request: TicketRequest): number;
}

/** The state of the primitives in the memory of the process. Modules share it if they share the backend. */
export class MemoryPrimitives {
  private readonly runs = new ExpiringMap<KnownRun>();
  private readonly semaphores = new MemorySemaphores();
  private readonly latches = new MemoryLatches();
  private readonly results = new ExpiringMap<KnownResult>();
  private readonly rateLimits = new MemoryRateLimitStore();

  constructor(private readonly locksOf: (prefix: string | undefined) => MemoryLocks) {}

  /** The stores of one module. */
  open(prefix: string | undefined): PrimitiveStores {
    const locks = this.locksOf(prefix);
    return ownStore({
      runs: new MemoryRunRecords(locks, this.runs, prefix),
      semaphores: this.semaphores.open(prefix),
      latches: this.latches.open(prefix),
      results: new MemoryIdempotencyStore(locks, this.results, prefix),
      rateLimits: this.rateLimits.of(prefix),
      close: async () => {},
    });
  }
}

/** Takes the name for a first request. `owned`: by an earlier request of its ticket, which may have begun since. */
function takeFor(locks: MemoryLocks, lock: EnqueueRequest, above: number): AcquireAnswer & { owned: boolean } {
  const owned = locks.left(lock) > 0;
  const { name, claim } = lock;
  const answer = locks.take({ ...lock, waits: claim !== undefined, leastToken: above + 1 }, [name]);
  return { ...answer, owned };
}

/** A record, and the ticket whose first request began it. */
interface KnownResult extends IdempotencyRecord {
  readonly ticket?: string | undefined;
}

/** The results of idempotent methods in the memory of the process. */
class MemoryIdempotencyStore implements IdempotencyStore {
  private readonly before: string;

  /** `records` are shared by all modules of the backend. */
  constructor(
    private readonly locks: MemoryLocks,
    private readonly records: ExpiringMap<KnownResult>,
    prefix: string | undefined,
  ) {
    this.before = prefix === undefined ? '' : `${prefix}\u0000`;
  }

  async read(key: string): Promise<IdempotencyRecord | null> {
    const record = this.records.get(this.before + key);
    return record ? copyOf(record) : null;
  }

  async begin(request: BeginRequest): Promise<IdempotencyRecord> {
    const present = this.records.get(this.before + request.key);
    if (present && (answers(present, request) || present.token >= request.token)) return copyOf(present);
    return this.begun(request, present);
  }

  async enter({ lock, ...request }: EnterRequest): Promise<EnterAnswer> {
    const present = this.records.get(this.before + request.key);
    if (present && answers(present, request)) return { status: 'answered', record: copyOf(present) };
    const remaining = present?.ticket === lock.ticket ? this.locks.left(lock) : 0;
    if (present && remaining > 0) {
      const tokens = { first: present.token, count: 1 };
      return { status: 'granted', tokens, remaining, waiting: undefined, begun: copyOf(present) };
    }
    const { owned, ...answer } = takeFor(this.locks, lock, present?.token ?? 0);
    if (answer.status === 'busy' || owned) return answer;
    return { ...answer, begun: this.begun({ ...request, token: answer.tokens.first }, present, lock.ticket) };
  }

  async keep(request: KeepResultRequest): Promise<boolean> {
    return this.kept(request);
  }

  async leave({ lock, ...request }: LeaveRequest): Promise<LeaveAnswer> {
    const kept = this.kept(request);
    return { ...this.locks.free(lock), kept };
  }

  async forget(request: ForgetAttemptRequest): Promise<void> {
    const { key } = request;
    const present = this.records.get(this.before + key);
    const mine = 'token' in request ? present?.token === request.token : present?.ticket === request.ticket;
    if (present?.state !== 'running' || !mine) return;
    // Attempts before it, which may have done something, still count.
    const left = this.records.remaining(this.before + key) ?? 0;
    const earlier = { ...present, token: present.token - 1, attempt: present.attempt - 1, ticket: undefined };
    if (present.attempt > 1) this.records.set(this.before + key, earlier, left);
    else this.records.delete(this.before + key);
  }

  private begun(request: BeginRequest, present: KnownResult | undefined, ticket?: string): IdempotencyRecord {
    const { key, token, fingerprint, ttl } = request;
    const begun: KnownResult = {
      state: 'running',
      token,
      attempt: (present?.attempt ?? 0) + 1,
      fingerprint: fingerprint === '' ? (present?.fingerprint ?? '') : fingerprint,
      payload: Buffer.alloc(0),
      ticket,
    };
    this.records.set(this.before + key, begun, ttl);
    return copyOf(begun);
  }

  private kept({ key, record, ttl, evenIfForgotten }: KeepResultRequest): boolean {
    const present = this.records.get(this.before + key);
    if (!present && !evenIfForgotten) return false;
    if (present && present.state !== 'running') return present.token === record.token;
    if (present && present.token > record.token) return false;
    this.records.set(this.before + key, { ...record, payload: Buffer.from(record.payload) }, ttl);
    return true;
  }
}

/** Whether the record says all to a request: a result is kept, or the fingerprints differ. */
function answers(record: IdempotencyRecord, { fingerprint }: Pick<BeginRequest, 'fingerprint'>): boolean {
  const differ = record.fingerprint !== '' && fingerprint !== '' && record.fingerprint !== fingerprint;
  return record.state !== 'running' || differ;
}

/** A serializer may make values that share bytes with the payload. */
function copyOf({ state, token, attempt, fingerprint, payload }: IdempotencyRecord): IdempotencyRecord {
  return { state, token, attempt, fingerprint, payload: Buffer.from(payload) };
}

/** Count-down latches in the memory of the process, for modules that share the backend. */
class MemoryLatches {
  private readonly latches = new ExpiringMap<Latch>();
  /** By process, each with the prefix of its module. */
  private readonly listeners = new Map<
    string,
    { readonly prefix: string | undefined; readonly listener: LatchListener }
  >();

  open(prefix: string | undefined): LatchStore {
    const keyOf = (name: string) => JSON.stringify([prefix, name]);
    return {
      define: async ({ name, count, ttl }) => {
        const latch = this.latches.get(keyOf(name)) ?? { count, ttl, arrivals: new Set() };
        if (!this.latches.get(keyOf(name))) this.latches.set(keyOf(name), latch, ttl);
        return stateOf(latch);
      },
      arrive: async ({ name, arrival }) => {
        const latch = this.latches.get(keyOf(name));
        if (!latch) return undefined;
        if (stateOf(latch).remaining > 0) latch.arrivals.add(arrival);
        this.latches.expire(keyOf(name), latch.ttl);
        if (stateOf(latch).remaining === 0) this.tell(prefix, name);
        return stateOf(latch);
      },
      look: async (name) => {
        const latch = this.latches.get(keyOf(name));
        return latch && stateOf(latch);
      },
      listen: (listener) => void this.listeners.set(listener.process, { prefix, listener }),
      unlisten: (process) => void this.listeners.delete(process),
    };
  }

  private tell(prefix: string | undefined, name: string): void {
    for (const each of this.listeners.values()) {
      if (each.prefix === prefix) setImmediate(() => each.listener.onOpen(name));
    }
  }
}

interface Latch {
  readonly count: number;
  readonly ttl: number;
  readonly arrivals: Set<string>;
}

function stateOf({ count, arrivals }: Latch): LatchState {
  return { count, remaining: count - arrivals.size };
}

/** Rate limits in memory, on the monotonic clock of the process, by the same algorithm as on Redis. */
export class MemoryRateLimitStore implements RateLimitStore {
  private begin = '';

  constructor(
    /** The µs of the monotonic clock at which all units are back. */
    private readonly full = new ExpiringMap<number>(),
    private readonly windows = new ExpiringMap<Window>(),
  ) {}

  /** The same counts, for the keys of a module. */
  of(prefix: string | undefined): MemoryRateLimitStore {
    const store = new MemoryRateLimitStore(this.full, this.windows);
    store.begin = prefix === undefined ? '' : `${prefix}:`;
    return store;
  }

  async take(request: TakeRequest): Promise<TakeAnswer> {
    const now = microseconds();
    const used = this.usedAt(now, request);
    let granted = request.most;
    for (const [index, { interval, capacity }] of request.limits.entries()) {
      granted = Math.min(granted, Math.floor((capacity - (used[index] as number)) / interval));
    }
    if (granted < request.least) return { granted: 0, used };
    for (const [index, { id, interval }] of request.limits.entries()) {
      const after = (used[index] as number) + granted * interval;
      used[index] = after;
      this.full.set(this.keyOf(request.key, id), now + after, after / 1_000 + 1);
    }
    return { granted, used };
  }

  async peek(request: Pick<TakeRequest, 'key' | 'limits'>): Promise<readonly number[]> {
    return this.usedAt(microseconds(), request);
  }

  async reset({ key, limits }: Pick<TakeRequest, 'key' | 'limits'>): Promise<void> {
    for (const { id } of limits) this.full.delete(this.keyOf(key, id));
  }

  async hit({ key, window, limit, block }: HitRequest): Promise<HitAnswer> {
    const counted = this.keyOf(key, 'hits');
    const before = this.windows.get(counted);
    const left = this.windows.remaining(counted) ?? window;
    if (before?.blocked) return { hits: before.hits, left, blocked: true };
    const hits = (before?.hits ?? 0) + 1;
    const blocked = hits > limit;
    const beyond = blocked && block > 0;
    this.windows.set(counted, { hits, blocked: beyond }, beyond ? block : left);
    return { hits, left: beyond ? block : left, blocked };
  }

  private usedAt(now: number, { key, limits }: Pick<TakeRequest, 'key' | 'limits'>): number[] {
    return limits.map(({ id, capacity }) => {
      const full = this.full.get(this.keyOf(key, id)) ?? 0;
      return Math.min(capacity, Math.max(0, full - now));
    });
  }

  private keyOf(key: string, id: string): string {
    return `${this.begin}${key}\n${id}`;
  }
}

interface Window {
  readonly hits: number;
  readonly blocked: boolean;
}

function microseconds(): number {
  return Math.floor(performance.now() * 1_000);
}

/** The last run of each scheduled job, as the Redis backend keeps it. */
class MemoryRunRecords implements RunRecords {
  constructor(
    private readonly locks: MemoryLocks,
    private readonly records: ExpiringMap<KnownRun>,
    private readonly prefix = '',
  ) {}

  async begin(request: RunRequest): Promise<void> {
    this.record(request, 0);
  }

  async end(request: EndRunRequest): Promise<void> {
    this.record(request, request.took, request.succeeded);
  }

  async enter({ lock, ...run }: EnterRunRequest): Promise<EnterRunAnswer> {
    const known = this.records.get(this.keyOf(run.name));
    const remaining = known?.entered?.ticket === lock.ticket ? this.locks.left(lock) : 0;
    if (known && remaining > 0) {
      const tokens = { first: known.token, count: 1 };
      return { status: 'granted', tokens, remaining, waiting: undefined, recorded: true };
    }
    const { owned, ...answer } = takeFor(this.locks, lock, known?.token ?? 0);
    if (answer.status === 'busy' || owned) return answer;
    const before = known && { ...known, entered: undefined };
    this.record({ ...run, token: answer.tokens.first }, 0, undefined, { ticket: lock.ticket, before });
    return { ...answer, recorded: true };
  }

  async forget({ name, ticket }: TicketRequest): Promise<void> {
    const known = this.records.get(this.keyOf(name));
    if (known?.entered?.ticket !== ticket || known.end) return;
    const { before } = known.entered;
    if (before) this.records.set(this.keyOf(name), before, RECORD_TTL);
    else this.records.delete(this.keyOf(name));
  }

  async leave({ lock, ...run }: LeaveRunRequest): Promise<LeaveRunAnswer> {
    const answer = lock.rest > 0 ? this.locks.cut(lock) : this.locks.free(lock);
    const recorded = answer.status === 'released';
    if (recorded) this.record(run, run.took, run.succeeded);
    return { ...answer, recorded };
  }

  async last(name: string): Promise<RunRecord | null> {
    const known = this.records.get(this.keyOf(name));
    if (!known) return null;
    const { token, by, startedAt, end, due } = known;
    return { token, by, startedAt, end, overdue: Date.now() >= due };
  }

  private record(
    { name, token, by, atMostFor }: RunRequest,
    took: number,
    succeeded?: boolean,
    entered?: EnteredRun,
  ): void {
    const key = this.keyOf(name);
    const known = this.records.get(key);
    if (known && known.token > token) return;
    const now = Date.now();
    const startedAt = now - took;
    const begun = { token, by, startedAt, end: undefined, due: startedAt + atMostFor, entered };
    const run = known?.token === token ? known : begun;
    const end = run.end ?? (succeeded === undefined ? undefined : { at: now, succeeded });
    this.records.set(key, { ...run, end }, RECORD_TTL);
  }

  private keyOf(name: string): string {
    return `${this.prefix}\u0000${name}`;
  }
}

/** A run in the memory of the process. */
interface KnownRun extends Omit<RunRecord, 'overdue'> {
  readonly due: number;
  readonly entered: EnteredRun | undefined;
}

/** The ticket whose first request recorded the run, and what that replaced: the run may never begin. */
interface EnteredRun {
  readonly ticket: string;
  readonly before: KnownRun | undefined;
}
