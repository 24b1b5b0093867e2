import { inspect } from 'node:util';
import { BoundedCall, BoundedCalls } from '../../calls/bounded-call.js';
import type { LockBackend, LockStore } from '../../contracts/lock-backend.js';
import type {
  AcquireAnswer,
  AcquireRequest,
  Granted,
  KeepRequest,
  ListedNames,
  ListRequest,
  LockState,
  Minted,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
  TokenRange,
} from '../../contracts/lock-requests.js';
import type { Pending } from '../../contracts/store.js';
import { LockBackendError, LockConfigError, LockError } from '../../errors/lock-errors.js';
import type { LockSource } from '../../events/lock-channels.js';
import type { Warnings } from '../../errors/limited-log.js';
import { quoted } from '../../keys/key-part.js';
import { Ticks, Timeouts, type Instant } from '../../timing/clock.js';
import type { LockMode } from '../options/lock-options.js';
import { exceedsLease, floorOf, Grant, trustedLease, whyNoToken, type TokenFloor } from './grant.js';

/** Names, and the ticket that owns them or may own them. */
export interface Ticketed {
  readonly names: readonly string[];
  readonly ticket: string;
  /** When (monotonic, ms) the minimum hold of the names ends; 0 or absent: there is none. */
  readonly minHoldUntil?: number | undefined;
}

/** Asks for a lease of at least `ttl` ms. */
export interface RenewalRequest extends Ticketed {
  readonly ttl: number;
}

/**
 * Frees the name of a ticket, or has its lease end with the rest of a minimum hold (0: none), in the same step as it
 * does something else at the store.
 */
export type LastRequest = (request: KeepRequest) => Pending<ReleaseAnswer>;

/** What a grant contains, whether an answer or a message reported it. */
export type GrantedLease = Omit<Granted, 'status'>;

/** The start of a backend may take as long as this number of calls, one after the other. */
const START_CALLS = 5;

/**
 * The door to one backend: all calls to it, and all that it answers, pass here, so that what no backend may have to
 * remember stands once. Each call fails with a `LockBackendError` after its time limit, whatever the client library
 * does; the backend may still carry it out. A lease counts for no longer than was asked for (`granted`, `renewed`), no
 * fencing token falls (`TokenFloor`), and what the backend refuses for good is not asked again (`begin`). A backend is
 * asked about one name at a time: of several, the answers are made into one here.
 */
export class BackendCalls extends BoundedCalls<readonly string[], LockBackendError> {
  readonly timeouts = new Timeouts();
  readonly limits = this.timeouts;
  /** When what recurs is sent to the backend: renewals, heartbeats. */
  readonly ticks = new Ticks();
  /** None: each lock must ask the backend, because an earlier failure does not show what it would answer now. */
  readonly breaker = undefined;
  /** Called when a connection has opened: the store may have lost what it granted. */
  readonly whenConnected = new Set<() => void>();
  private readonly floor: TokenFloor;
  /** The longest lease (ms) that a session gave which was asked for more: no renewal is expected to give more. */
  private longestSession = 0;

  constructor(
    readonly backend: LockBackend,
    /** What this module opened there. */
    readonly store: LockStore,
    prefix: string | undefined,
    readonly commandTimeout: number,
    /** Where its locks come from, for events. */
    readonly source: LockSource = { backend: backend.name, label: '' },
    private readonly logger?: Warnings,
  ) {
    super(backend);
    this.floor = floorOf(backend, prefix);
  }

  /**
   * As much of a grant as is believed, of names that were asked for `asked` ms at `base`: no longer lease, and no token
   * that this process has seen. Where no token is left, others are to be minted before the names have a holder. Those
   * that read share a token, which must not be below what was seen.
   *
   * @throws LockBackendError for what is no grant: a backend of the application's may answer anything
   */
  granted(
    { names, ticket }: Ticketed,
    { base, asked, mode = 'write' }: { readonly base: Instant; readonly asked: number; readonly mode?: LockMode },
    answer: GrantedLease,
  ): Grant {
    const { tokens, remaining } = answer;
    if (!tokens || typeof remaining !== 'number') throw this.noAnswer(names, answer);
    if (remaining > asked && exceedsLease(remaining, asked)) this.warnOfLease(names, remaining, asked);
    const fresh = this.floor.admit(names, tokens, mode);
    if (fresh.count === 0) this.warnOfTokens(names, tokens.first);
    const lease = trustedLease(remaining, asked);
    const grant = new Grant(names, ticket, base, lease, fresh, asked);
    if (this.backend.traits.lease === 'session' && lease < asked) {
      this.longestSession = Math.max(this.longestSession, lease);
      grant.most = this.longestSession;
    }
    return grant;
  }

  /** The error for what is neither a grant nor says that the names are taken. */
  noAnswer(names: readonly string[], answer: unknown): LockBackendError {
    return this.failure('acquire', names, `it answered ${inspect(answer, { depth: 1, breakLength: Infinity })}`);
  }

  /** The backend answered `remaining` ms to a request for `asked` ms that was sent at `sentAt`. */
  renewed(grant: Grant, sentAt: Instant, remaining: number, asked: number): void {
    const longest = Math.max(asked, grant.longest);
    if (remaining > longest && exceedsLease(remaining, longest)) this.warnOfLease(grant.names, remaining, longest);
    grant.renewed(sentAt, remaining, asked);
    if (this.backend.traits.lease === 'session' && remaining < asked) {
      this.longestSession = Math.max(this.longestSession, remaining);
    }
  }

  /**
   * Without a time limit: the caller that gives up must release what is granted later. Several names only where the
   * backend has `acquireSeveral`.
   */
  acquire({ names, ticket }: Ticketed, asked: Omit<AcquireRequest, keyof TicketRequest>): Promise<AcquireAnswer> {
    const { store } = this;
    const [name = '', ...others] = names;
    const call = () =>
      others.length === 0
        ? store.acquire({ name, ticket, ...asked })
        : store.acquireSeveral!({ names, ticket, ...asked });
    return this.explained('acquire', names, this.begin(call));
  }

  /**
   * One answer for each request, without a time limit: a late one still counts. A backend that throws instead of
   * rejecting must not stop the watchdog.
   */
  sendRenewals(requests: readonly RenewalRequest[]): readonly Pending<RenewAnswer>[] {
    const { refusal } = this.told;
    if (refusal) return requests.map(() => Promise.reject(refusal));
    const each: RenewRequest[] = [];
    for (const { names, ticket, ttl } of requests) for (const name of names) each.push({ name, ticket, ttl });
    try {
      const sent = this.store.renew(each);
      const answers: Pending<RenewAnswer>[] = [];
      let next = 0;
      for (const { names } of requests) {
        const own = sent.slice(next, (next += names.length));
        answers.push(names.length === 1 ? (own[0] as Pending<RenewAnswer>) : leastOf(own));
      }
      return answers;
    } catch (error) {
      return requests.map(() => Promise.reject(error));
    }
  }

  /** Sends one renewal. */
  sendRenewal(
    request: RenewalRequest,
    answered: (answer: RenewAnswer) => void,
    failed: (error: LockBackendError) => void,
    limit = this.commandTimeout,
  ): void {
    const [call] = this.sendRenewals([request]) as [Pending<RenewAnswer>];
    // Not by `send`, which drops the call of a backend that refuses by now, and nobody would handle its rejection.
    void new BoundedCall(this, 'renew', request.names, limit, answered, failed, answered, call);
  }

  /**
   * Reserves further tokens, of `leastToken` and above, and above all that this process has seen. The backend that
   * offers lower ones has broken the contract: the call fails.
   */
  mint(
    names: readonly [string],
    ticket: string,
    leastToken: number,
    answered: (tokens: Minted | null) => void,
    failed: (error: LockBackendError) => void,
    limit?: number,
    mode: LockMode = 'write',
  ): void {
    const [name] = names;
    const least = Math.max(leastToken, this.floor.of(name) + (mode === 'read' ? 0 : 1));
    let over = false;
    const fail = (error: LockBackendError) => {
      over = true;
      failed(error);
    };
    const minted = (answer: Minted | null) => {
      if (!answer) return answered(null);
      const offered = from(least, answer);
      const tokens = this.floor.admit(names, offered, mode);
      if (tokens.count > 0) return answered({ ...answer, ...tokens });
      // The message of a later grant may have overtaken the answer; the store has lost nothing.
      const outdated = offered.count > 0 && offered.first <= this.floor.of(name);
      if (!outdated) this.warnOfTokens(names, answer.first);
      const why = outdated ? 'its answer is outdated' : whyNoToken(answer.first, least - 1);
      if (!over) fail(this.failure('acquire', names, `it offered fencing token ${answer.first}, ${why}`));
    };
    const call = () => this.store.mint({ name, ticket, leastToken: least });
    this.send('acquire', names, call, minted, fail, limit);
  }

  /** Frees those of the names that the ticket owns, or makes their lease end with their minimum hold. */
  release(ticketed: Ticketed, limit = this.commandTimeout): Promise<ReleaseAnswer> {
    return new Promise((resolve, reject) => {
      this.sendRelease(ticketed, limit, resolve, reject);
    });
  }

  /** As `release`, by callbacks. */
  sendRelease(
    { names, ticket, minHoldUntil = 0 }: Ticketed,
    limit: number,
    answered: (answer: ReleaseAnswer) => void,
    failed: (error: LockBackendError) => void,
    by?: LastRequest,
  ): void {
    const { store } = this;
    const rest = minHoldUntil === 0 ? 0 : Math.max(0, Math.ceil(minHoldUntil - performance.now()));
    const give = (name = names[0] as string) => {
      if (by) return by({ name, ticket, rest });
      return rest > 0 && store.keep ? store.keep({ name, ticket, rest }) : store.release({ name, ticket });
    };
    // Also to a backend that refuses by now: what it granted before is given back.
    const all = () => worstOf(names.map((name) => give(name)));
    const call = this.begin(names.length === 1 ? give : all, true);
    const late = by ? undefined : answered;
    void new BoundedCall(this, 'release', names, limit, answered, failed, late, call);
  }

  /** Unless it is answered, the lock stays that of its owner until the readers of this process have ended. */
  downgrade({ names, ticket }: Ticketed, ttl: number): void {
    const { store } = this;
    if (!store.downgrade) return;
    for (const name of names) {
      const call = () => store.downgrade!({ name, ticket, ttl });
      this.bounded('downgrade', [name], call).catch(() => {});
    }
  }

  inspect(name: string, limit?: number): Promise<LockState | null> {
    return this.bounded('inspect', [name], () => this.store.inspect({ name }), limit);
  }

  /** @throws LockConfigError where the backend cannot do it */
  async list(request: ListRequest): Promise<ListedNames> {
    const { store } = this;
    if (store.list) return this.bounded('list', [], () => store.list!(request));
    throw new LockConfigError(`Backend "${this.backend.name}" cannot list its locks; inspect them by name`);
  }

  async label(label: string, ttl: number): Promise<void> {
    const { store } = this;
    if (store.label) await this.bounded('label', [], () => store.label!(label, ttl));
  }

  /** @throws LockConfigError where the backend cannot do it */
  async forceRelease(name: string): Promise<string | readonly string[] | null> {
    const { store } = this;
    if (store.forceRelease) return this.bounded('forceRelease', [name], () => store.forceRelease!({ name }));
    throw new LockConfigError(
      `Backend "${this.backend.name}" cannot free a name that another process holds; end the process of its holder`,
    );
  }

  /** Rejects when the backend cannot serve. */
  async start(): Promise<void> {
    const { store, commandTimeout } = this;
    const started = store.start && this.bounded('start', [], () => store.start!(), START_CALLS * commandTimeout);
    const pinged = this.ping();
    if (started) this.checks.add(started);
    await Promise.all([started, pinged]);
  }

  ping(limit?: number): Promise<void> {
    return this.bounded('ping', [], () => this.backend.ping(), limit);
  }

  /** Rejects after `limit` ms; a later answer is dropped. */
  bounded<T>(
    operation: string,
    names: readonly string[],
    call: () => Pending<T>,
    limit = this.commandTimeout,
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.send(operation, names, call, resolve, reject, limit);
    });
  }

  /** As `bounded`, but an answer that arrives after `failed` was called still goes to `answered`. */
  send<T>(
    operation: string,
    names: readonly string[],
    call: () => Pending<T>,
    answered: (answer: T) => void,
    failed: (error: LockBackendError) => void,
    limit = this.commandTimeout,
  ): void {
    void new BoundedCall(this, operation, names, limit, answered, failed, answered, this.begin(call));
  }

  unanswered(operation: string, names: readonly string[], limit: number): LockBackendError {
    return this.gaveUp(operation, names, `no answer within ${Math.round(limit)} ms`);
  }

  override explain(operation: string, names: readonly string[], error: unknown): LockBackendError {
    if (!(error instanceof LockError)) return super.explain(operation, names, error);
    this.heed(error);
    return error;
  }

  failure(operation: string, names: readonly string[], why: string, cause?: unknown): LockBackendError {
    const concerned = names.length === 0 ? '' : ` of ${quoted(names)}`;
    return new LockBackendError(
      names,
      `Lock backend "${this.backend.name}": ${operation}${concerned} failed: ${why}`,
      cause,
    );
  }

  private async explained<T>(operation: string, names: readonly string[], call: Pending<T>): Promise<T> {
    let answer: T;
    try {
      answer = await call;
    } catch (error) {
      throw this.explain(operation, names, error);
    }
    if (answer) return answer;
    throw this.failure(operation, names, `it answered ${String(answer)}`);
  }

  private warnOfLease(names: readonly string[], remaining: number, asked: number): void {
    // A session lasts as long as it does, whatever one of its locks asked for.
    if (this.backend.traits.lease === 'session') return;
    this.logger?.warn(
      `Lock backend "${this.backend.name}" says that ${quoted(names)} is held for another ${remaining} ms, though ` +
        `${Math.round(asked)} ms was asked for. The lease counts for no longer than was asked; did the clock of the store ` +
        'step back, or did somebody else set an expiry?',
      `lease of ${this.backend.name}`,
    );
  }

  private warnOfTokens(names: readonly string[], offered: number): void {
    const seen = Math.max(...names.map((name) => this.floor.of(name)));
    this.logger?.warn(
      `Lock backend "${this.backend.name}" offers fencing token ${offered} for ${quoted(names)}, ` +
        `${whyNoToken(offered, seen)}. It is asked for other tokens before anybody gets the lock`,
      `tokens of ${this.backend.name}`,
    );
  }
}

/** The answer for all names of a ticket, which owns them together or not at all. */
async function leastOf(calls: readonly Pending<RenewAnswer>[]): Promise<RenewAnswer> {
  let [remaining, waiting] = [Infinity, 0];
  for (const answer of await Promise.all(calls)) {
    if (answer.status !== 'renewed') return answer;
    remaining = Math.min(remaining, answer.remaining);
    waiting += answer.waiting ?? 0;
  }
  return { status: 'renewed', remaining, waiting };
}

/** The answer for names that are released each by itself: `released` only if all were. */
async function worstOf(calls: readonly Pending<ReleaseAnswer>[]): Promise<ReleaseAnswer> {
  const answers = await Promise.all(calls);
  const worst = (['taken', 'gone'] as const).find((status) => answers.some((answer) => answer.status === status));
  return { status: worst ?? 'released', resent: answers.some(({ resent }) => resent) };
}

/** Those of the tokens that are not below `least`. */
function from(least: number, { first, count }: TokenRange): TokenRange {
  return first >= least ? { first, count } : { first: least, count: first + count - least };
}
