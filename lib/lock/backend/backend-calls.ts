import { BoundedCall } from '../../calls/bounded-call.js';
import { BoundedCalls } from '../../calls/bounded-calls.js';
import type { LockBackend } from '../../contracts/lock-backend.js';
import type {
  EnqueueRequest,
  LockQueue,
  QueueAnswer,
  QueueListener,
  RequeueRequest,
  TokenRange,
} from '../../contracts/lock-queue.js';
import type {
  AcquireAnswer,
  LockState,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
} from '../../contracts/lock-requests.js';
import type { Pending } from '../../contracts/pending.js';
import type { Notice } from '../../contracts/start-request.js';
import { LockBackendError, LockError } from '../../errors/lock-errors.js';
import { Timeouts } from '../../timing/timeouts.js';

export interface Ticketed {
  readonly names: readonly string[];
  readonly ticket: string;
  /** When (monotonic, ms) the minimum hold of the names ends; 0 or absent: there is none. */
  readonly minHoldUntil?: number;
}

/** How many calls, one after the other, a backend may make at its start. */
const START_CALLS = 5;

/**
 * The calls to one backend. Each fails with a `LockBackendError` after its time limit, whatever the client library
 * does. The backend may still carry out a call that has failed here.
 */
export class BackendCalls extends BoundedCalls<readonly string[], LockBackendError> {
  readonly timeouts = new Timeouts();
  readonly limits = this.timeouts;
  /** Every lock asks the backend: a failure before says nothing of whether it is granted now. */
  readonly breaker = undefined;
  /** Present where the backend keeps a queue. */
  readonly queue: QueueCalls | undefined;

  constructor(
    readonly backend: LockBackend,
    private readonly prefix: string | undefined,
    readonly commandTimeout: number,
  ) {
    super(backend);
    this.queue = backend.queue && new QueueCalls(this, backend.queue, prefix);
  }

  /** Without a time limit: the caller that gives up must release what is granted later. */
  acquire({ names, ticket }: Ticketed, ttl: number, leastToken?: number): Promise<AcquireAnswer> {
    const least = leastToken === undefined ? {} : { leastToken };
    const request = { prefix: this.prefix, names, ticket, ttl, ...least };
    return this.explained('acquire', names, this.backend.acquire(request));
  }

  /** Without a time limit: a late answer still counts. */
  renew(requests: readonly (Ticketed & { readonly ttl: number })[]): readonly Promise<RenewAnswer>[] {
    const prefixed: RenewRequest[] = requests.map((request) => ({ ...request, prefix: this.prefix }));
    return this.sentRenewals(prefixed).map((answer, index) =>
      this.explained('renew', prefixed[index]?.names ?? [], answer),
    );
  }

  release(ticketed: Ticketed, limit = this.commandTimeout): Promise<ReleaseAnswer> {
    return new Promise((resolve, reject) => {
      this.sendRelease(ticketed, limit, resolve, reject);
    });
  }

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

  inspect(name: string): Promise<LockState | null> {
    return this.bounded('inspect', [name], this.backend.inspect({ prefix: this.prefix, name }));
  }

  async label(process: string, label: string, ttl: number): Promise<void> {
    const call = this.backend.label?.({ prefix: this.prefix, process, label, ttl });
    if (call) await this.bounded('label', [], call);
  }

  forceRelease(name: string): Promise<string | null> {
    return this.bounded('forceRelease', [name], this.backend.forceRelease({ prefix: this.prefix, name }));
  }

  /** Rejects when the backend cannot serve; `report` logs everything else about it, now or later. */
  async start(report: (notice: Notice) => void): Promise<void> {
    const { backend, prefix, commandTimeout } = this;
    const started = backend.start?.({ prefix, commandTimeout, report });
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
    const concerned = names.length === 0 ? '' : ` of ${names.map((name) => `"${name}"`).join(', ')}`;
    return new LockBackendError(
      names,
      `Lock backend "${this.backend.name}": ${operation}${concerned} failed: ${why}`,
      cause,
    );
  }

  /** Sends one renewal, bounded. */
  sendRenewal(
    { names, ticket, ttl }: Ticketed & { readonly ttl: number },
    answered: (answer: RenewAnswer) => void,
    failed: (error: LockBackendError) => void,
  ): void {
    const [call] = this.renew([{ names, ticket, ttl }]);
    this.send('renew', names, call as Promise<RenewAnswer>, answered, failed);
  }

  private async explained<T>(operation: string, names: readonly string[], call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      throw this.explain(operation, names, error);
    }
  }

  /** A backend that throws instead of rejecting must not stop the watchdog. */
  private sentRenewals(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    try {
      return this.backend.renew(requests);
    } catch (error) {
      return requests.map(() => Promise.reject(error));
    }
  }
}

/** A request without what `QueueCalls` fills in. */
type OfOneName<R> = Omit<R, 'prefix' | 'name'>;

/** The calls to the queue of one backend: bounded and explained like the others, with the prefix of the module. */
export class QueueCalls {
  constructor(
    private readonly calls: BackendCalls,
    private readonly queue: LockQueue,
    private readonly prefix: string | undefined,
  ) {}

  listen(listener: Omit<QueueListener, 'prefix'>): Promise<void> {
    return this.calls.bounded('acquire', [], this.queue.listen({ ...listener, prefix: this.prefix }));
  }

  unlisten(process: string): void {
    this.queue.unlisten?.({ prefix: this.prefix, process });
  }

  enqueue(
    names: readonly [string],
    { ticket, ttl, claim }: OfOneName<EnqueueRequest>,
    answered: (answer: QueueAnswer) => void,
    failed: (error: LockBackendError) => void,
    limit?: number,
  ): void {
    const call = this.queue.enqueue({ prefix: this.prefix, name: names[0], ticket, ttl, claim });
    this.calls.send('acquire', names, call, answered, failed, limit);
  }

  beat(
    names: readonly [string],
    ticket: string,
    answered: (answer: Awaited<ReturnType<LockQueue['beat']>>) => void,
    failed: (error: LockBackendError) => void,
    limit?: number,
  ): void {
    const call = this.queue.beat({ prefix: this.prefix, name: names[0], ticket });
    this.calls.send('acquire', names, call, answered, failed, limit);
  }

  requeue(
    names: readonly [string],
    request: OfOneName<RequeueRequest>,
    answered: (answer: Awaited<ReturnType<LockQueue['requeue']>>) => void,
    failed: (error: LockBackendError) => void,
  ): void {
    const call = this.queue.requeue({ prefix: this.prefix, name: names[0], ...request });
    this.calls.send('release', names, call, answered, failed);
  }

  mint(
    names: readonly [string],
    ticket: string,
    leastToken: number,
    answered: (tokens: TokenRange | null) => void,
    failed: (error: LockBackendError) => void,
    limit?: number,
  ): void {
    const call = this.queue.mint({ prefix: this.prefix, name: names[0], ticket, leastToken });
    this.calls.send('acquire', names, call, answered, failed, limit);
  }
}
