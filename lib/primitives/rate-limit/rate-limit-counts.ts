import { CircuitBreaker } from '../../calls/bounded-call.js';
import type { HitAnswer, HitRequest, RateLimitStore, TakeAnswer } from '../../contracts/primitive-stores.js';
import { isLasting, type Pending } from '../../contracts/store.js';
import type { Warnings } from '../../errors/limited-log.js';
import type { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import type { LockSource } from '../../events/lock-channels.js';
import type { BackendCalls } from '../../lock/grant/store.js';
import { rateLimitChannels } from '../../events/rate-limit-channels.js';
import { type PrimitiveRuntime, PrimitiveCalls } from '../runtime.js';
import type { DecidedBy, Usage, RateLimitDecision } from './rate-limit-decision.js';
import type { OnRateLimitFailure, RateLimitSettings } from './rate-limit-options.js';

/** What a call takes: at least `least` and at most `most` units. */
interface Units {
  readonly least: number;
  readonly most: number;
}

export interface Taken extends Usage {
  readonly granted: number;
}

/** Takes the answer of a store, or of this process alone; `undefined` where nobody decided. */
type Decided<T> = (answer: T | undefined, decidedBy: DecidedBy) => void;

type Failed = (error: unknown) => void;

/** The counts at one backend; while it does not answer, what `onFailure` says. */
export class RateLimitCounts {
  private readonly warnings: Warnings;
  private readonly calls: RateLimitCalls;
  private readonly store: RateLimitStore;
  readonly source: LockSource;

  constructor(
    private readonly runtime: PrimitiveRuntime,
    /** Keeps the counts of this process alone. */
    private readonly local: RateLimitStore,
    backend: string | undefined,
  ) {
    const { stores, source } = runtime.home('Rate limits', backend);
    this.store = stores.rateLimits;
    this.source = source;
    const { backends } = runtime;
    this.warnings = backends.logger;
    this.calls = new RateLimitCalls(backends.get(backend).calls, backends.options.commandTimeout, this.warnings);
    backends.whenStopping(async () => this.calls.stop());
  }

  /** @throws PrimitiveBackendError where `onFailure` is 'closed' */
  take(key: string, settings: RateLimitSettings, units: Units): Promise<Taken> {
    return new Promise((resolve, reject) => this.askToTake(key, settings, units, resolve, reject));
  }

  /** As `take`, without a promise of its own: with `AsyncLocalStorage` each one takes time. */
  askToTake(
    key: string,
    { limits, onFailure }: RateLimitSettings,
    { least, most }: Units,
    taken: (units: Taken) => void,
    failed: Failed,
  ): void {
    const request = { key, limits, least, most };
    const answered = (answer: TakeAnswer | undefined, decidedBy: DecidedBy) => {
      if (!answer) return taken({ allowed: true, granted: least, used: limits.map(() => 0), decidedBy });
      const granted = Math.min(answer.granted, most);
      taken({ allowed: granted > 0, granted, used: answer.used, decidedBy });
    };
    this.decide(onFailure, 'take', key, (store = this.store) => store.take(request), answered, failed);
  }

  /** @throws PrimitiveBackendError where `onFailure` is 'closed' */
  peek(key: string, { limits, onFailure, cost }: RateLimitSettings): Promise<Usage> {
    return new Promise((resolve, reject) => {
      const answered = (answer: readonly number[] | undefined, decidedBy: DecidedBy) => {
        const used = answer ?? limits.map(() => 0);
        const allowed = limits.every(
          ({ interval, capacity }, index) => (used[index] as number) + cost * interval <= capacity,
        );
        resolve({ allowed: allowed || !answer, used, decidedBy });
      };
      this.decide(onFailure, 'peek', key, (store = this.store) => store.peek({ key, limits }), answered, reject);
    });
  }

  /** @throws PrimitiveBackendError */
  async reset(key: string, { limits }: RateLimitSettings): Promise<void> {
    await this.local.reset({ key, limits });
    await this.calls.run('reset', key, () => this.store.reset({ key, limits }));
  }

  /** Answers `undefined` where nobody counted. Fails with a PrimitiveBackendError where `onFailure` is 'closed'. */
  hit(request: HitRequest, onFailure: OnRateLimitFailure, answered: Decided<HitAnswer>, failed: Failed): void {
    this.decide(onFailure, 'count', request.key, (store = this.store) => store.hit(request), answered, failed);
  }

  /** Asks the store, and on its failure what `onFailure` says; answers `undefined` where nobody decides. */
  private decide<T>(
    onFailure: OnRateLimitFailure,
    operation: string,
    key: string,
    ask: (store?: RateLimitStore) => Pending<T>,
    answered: Decided<T>,
    failed: Failed,
  ): void {
    if (this.runtime.isStopped) return failed(this.calls.failure(operation, key, 'the application has ended'));
    const without = (why: PrimitiveBackendError) => {
      // What lasts is no outage: each process would decide by itself for ever.
      if (onFailure === 'closed' || isLasting(why, { ofKey: false })) failed(why);
      else this.without(onFailure, why, ask, answered).catch(failed);
    };
    this.calls.ask(
      operation,
      key,
      ask,
      (answer) => {
        // From this process alone, it means that nobody has counted.
        if (!answer) throw new Error(`it answered ${String(answer)}`);
        answered(answer, 'store');
      },
      without,
    );
  }

  private async without<T>(
    onFailure: OnRateLimitFailure,
    error: PrimitiveBackendError,
    ask: (store: RateLimitStore) => Pending<T>,
    answered: Decided<T>,
  ): Promise<void> {
    // The breaker writes a warning of its own, and the call that opens it fails before.
    await Promise.resolve();
    if (!this.calls.breaker.isOpen) this.warnings.warn(`${error.message}. It goes on with onFailure: '${onFailure}'`);
    if (onFailure === 'open') answered(undefined, 'nobody');
    else answered(await ask(this.local), 'process');
  }
}

const BREAKER = { errors: 3, open: 5_000 };

/**
 * The calls to the store of the rate limits. After the first call without an answer, or three failures in a row, calls
 * fail at once until the store replies to a PING, so that an outage does not cost each request `commandTimeout` ms.
 */
class RateLimitCalls extends PrimitiveCalls {
  override readonly breaker: CircuitBreaker;

  constructor(ofLocks: BackendCalls, commandTimeout: number, warnings: Warnings) {
    super(ofLocks, commandTimeout);
    const { backend } = ofLocks;
    this.breaker = new CircuitBreaker(
      BREAKER,
      () => backend.ping(),
      () => {
        const why = backend.diagnose?.()?.message;
        warnings.warn(
          `The store of the rate limits does not answer; until it does, onFailure decides${why ? ` (${why})` : ''}`,
        );
        this.breaker.interruptAll('the store does not answer');
      },
      () => {},
    );
  }

  override failure(operation: string, key: string, why: string, cause?: unknown): PrimitiveBackendError {
    return super.failure(`${operation} of the rate limit`, key, why, cause);
  }

  stop(): void {
    this.breaker.stop();
    this.breaker.interruptAll('the application has ended');
  }
}

/** Publishes how a call was decided, to those who listen. */
export function publishDecision(
  source: LockSource,
  key: string,
  { template, cost }: Pick<RateLimitSettings, 'template' | 'cost'>,
  decision: Pick<RateLimitDecision, 'allowed' | 'decidedBy' | 'retryAfter'>,
): void {
  const { allowed, refused } = rateLimitChannels;
  const { decidedBy, retryAfter } = decision;
  const { backend, label } = source;
  if (decision.allowed) {
    if (allowed.hasSubscribers) allowed.publish({ key, template, backend, label, cost, decidedBy });
  } else if (refused.hasSubscribers) {
    refused.publish({ key, template, backend, label, cost, decidedBy, retryAfter });
  }
}

/** Publishes that a call was not decided, to those who listen. */
export function publishFailure(source: LockSource, key: string, template: string | undefined, error: unknown): void {
  const { failed } = rateLimitChannels;
  if (failed.hasSubscribers) failed.publish({ key, template, backend: source.backend, label: source.label, error });
}
