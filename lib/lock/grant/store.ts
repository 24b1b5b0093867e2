import { BoundedCall, BoundedCalls } from '../../calls/bounded-call.js';
import type { LockBackend } from '../../contracts/lock-backend.js';
import type {
  AcquireAnswer,
  ListedNames,
  ListRequest,
  LockState,
  Minted,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
} from '../../contracts/lock-requests.js';
import type { Pending, StartRequest } from '../../contracts/store.js';
import { LockBackendError, LockConfigError, LockError } from '../../errors/lock-errors.js';
import type { LockSource } from '../../events/lock-channels.js';
import { quoted } from '../../keys/key-part.js';
import { Timeouts } from '../../timing/timeouts.js';

/** Names, and the ticket that owns them or may own them. */
export interface Ticketed {
  readonly names: readonly string[];
  readonly ticket: string;
  /** When (monotonic, ms) the minimum hold of the names ends; 0 or absent: there is none. */
  readonly minHoldUntil?: number;
}

/** The start of a backend may take as long as this number of calls, one after the other. */
const START_CALLS = 5;

/**
 * The calls to one backend. Each fails with a `LockBackendError` after its time limit, whatever the client library
 * does. The backend may still carry out a call that has failed here.
 */
export class BackendCalls extends BoundedCalls<readonly string[], LockBackendError> {
  readonly timeouts = new Timeouts();
  readonly limits = this.timeouts;
  /** None: each lock must ask the backend, because an earlier failure does not show what it would answer now. */
  readonly breaker = undefined;

  constructor(
    readonly backend: LockBackend,
    readonly prefix: string | undefined,
    readonly commandTimeout: number,
    /** Where its locks come from, for events. */
    readonly source: LockSource = { backend: backend.name, label: '' },
  ) {
    super(backend);
  }

  /** Without a time limit: the caller that gives up must release what is granted later. */
  acquire({ names, ticket }: Ticketed, ttl: number, leastToken?: number): Promise<AcquireAnswer> {
    const least = leastToken === undefined ? {} : { leastToken };
    const request = { prefix: this.prefix, names, ticket, ttl, ...least };
    return this.explained('acquire', names, () => this.backend.acquire(request));
  }

  /** Without a time limit: a late answer still counts. */
  renew(requests: readonly (Ticketed & { readonly ttl: number })[]): readonly Promise<RenewAnswer>[] {
    const prefixed: RenewRequest[] = requests.map((request) => ({ ...request, prefix: this.prefix }));
    return this.sentRenewals(prefixed).map((answer, index) =>
      this.explained('renew', prefixed[index]?.names ?? [], () => answer),
    );
  }

  /** Sends one renewal, with the time limit of a command. */
  sendRenewal(
    { names, ticket, ttl }: Ticketed & { readonly ttl: number },
    answered: (answer: RenewAnswer) => void,
    failed: (error: LockBackendError) => void,
  ): void {
    const [call] = this.renew([{ names, ticket, ttl }]);
    this.send('renew', names, call as Pending<RenewAnswer>, answered, failed);
  }

  /** Reserves further tokens, of `leastToken` and above. */
  mint(
    names: readonly [string],
    ticket: string,
    leastToken: number,
    answered: (tokens: Minted | null) => void,
    failed: (error: LockBackendError) => void,
    limit?: number,
  ): void {
    // A backend that throws fails the call a little later, as one that rejects: the caller that the grant admits comes first.
    const call = asked(() => this.backend.mint({ prefix: this.prefix, name: names[0], ticket, leastToken }));
    this.send('acquire', names, call, answered, failed, limit);
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
  ): void {
    const { backend, prefix } = this;
    const rest = minHoldUntil === 0 ? 0 : Math.ceil(minHoldUntil - performance.now());
    let call: Pending<ReleaseAnswer>;
    try {
      call =
        rest > 0 && backend.keep
          ? backend.keep({ prefix, names, ticket, rest })
          : backend.release({ prefix, names, ticket });
    } catch (error) {
      return failed(this.explain('release', names, error));
    }
    this.send('release', names, call, answered, failed, limit);
  }

  /** Unless it is answered, the lock stays that of its owner until the readers of this process have ended. */
  downgrade({ names, ticket }: Ticketed, ttl: number): void {
    const call = this.backend.downgrade?.({ prefix: this.prefix, names, ticket, ttl });
    if (call) this.bounded('downgrade', names, call).catch(() => {});
  }

  inspect(name: string): Promise<LockState | null> {
    return this.bounded('inspect', [name], this.backend.inspect({ prefix: this.prefix, name }));
  }

  /** @throws LockConfigError where the backend cannot do it */
  async list(request: Omit<ListRequest, 'prefix'>): Promise<ListedNames> {
    const call = this.backend.list?.({ prefix: this.prefix, ...request });
    if (call) return this.bounded('list', [], call);
    throw new LockConfigError(`Backend "${this.backend.name}" cannot list its locks; inspect them by name`);
  }

  async label(process: string, label: string, ttl: number): Promise<void> {
    const call = this.backend.label?.({ prefix: this.prefix, process, label, ttl });
    if (call) await this.bounded('label', [], call);
  }

  /** @throws LockConfigError where the backend cannot do it */
  async forceRelease(name: string): Promise<string | readonly string[] | null> {
    const call = this.backend.forceRelease?.({ prefix: this.prefix, name });
    if (call) return this.bounded('forceRelease', [name], call);
    throw new LockConfigError(
      `Backend "${this.backend.name}" cannot free a name that another process holds; end the process of its holder`,
    );
  }

  /** Rejects when the backend cannot serve; `report` logs everything else about it, until the module has `stopped`. */
  async start({ report, stopped }: Pick<StartRequest, 'report' | 'stopped'>): Promise<void> {
    const { backend, prefix, commandTimeout } = this;
    const started = backend.start?.({ prefix, commandTimeout, report, stopped });
    const pinged = this.bounded('ping', [], backend.ping());
    await Promise.all([pinged, started && this.bounded('start', [], started, START_CALLS * commandTimeout)]);
  }

  /** Rejects after `limit` ms; a later answer is dropped. */
  bounded<T>(operation: string, names: readonly string[], call: Pending<T>, limit = this.commandTimeout): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.send(operation, names, call, resolve, reject, limit);
    });
  }

  /** As `bounded`, but an answer that arrives after `failed` was called still goes to `answered`. */
  send<T>(
    operation: string,
    names: readonly string[],
    call: Pending<T>,
    answered: (answer: T) => void,
    failed: (error: LockBackendError) => void,
    limit = this.commandTimeout,
  ): void {
    const pending = new BoundedCall(this, operation, names, limit, answered, failed, answered);
    call.then(pending.onAnswer, pending.onError);
  }

  unanswered(operation: string, names: readonly string[], limit: number): LockBackendError {
    return this.gaveUp(operation, names, `no answer within ${Math.round(limit)} ms`);
  }

  override explain(operation: string, names: readonly string[], error: unknown): LockBackendError {
    return error instanceof LockError ? error : super.explain(operation, names, error);
  }

  failure(operation: string, names: readonly string[], why: string, cause?: unknown): LockBackendError {
    const concerned = names.length === 0 ? '' : ` of ${quoted(names)}`;
    return new LockBackendError(
      names,
      `Lock backend "${this.backend.name}": ${operation}${concerned} failed: ${why}`,
      cause,
    );
  }

  private async explained<T>(operation: string, names: readonly string[], call: () => Pending<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      throw this.explain(operation, names, error);
    }
  }

  /** A backend that throws instead of rejecting must not stop the watchdog. */
  private sentRenewals(requests: readonly RenewRequest[]): readonly Pending<RenewAnswer>[] {
    try {
      return this.backend.renew(requests);
    } catch (error) {
      return requests.map(() => Promise.reject(error));
    }
  }
}

/** The answer that the request returns. A backend of the application's may throw instead of rejecting. */
export function asked<Answer>(request: () => Pending<Answer>): Pending<Answer> {
  try {
    return request();
  } catch (error) {
    return Promise.reject(error);
  }
}
