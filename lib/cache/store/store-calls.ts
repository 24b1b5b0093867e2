import { setTimeout as sleep } from 'node:timers/promises';
import type { CacheStore } from '../../contracts/cache-store.js';
import type { Pending } from '../../contracts/pending.js';
import { LinkedList, type Place } from '../../timing/linked-list.js';
import { Timeouts, type Expiring, type Timeout } from '../../timing/timeouts.js';
import { CacheBackendError } from '../../errors/cache-errors.js';
import { CircuitBreaker } from '../../calls/circuit-breaker.js';
import type { WarningLimiter } from '../../calls/warning-limiter.js';

export interface StoreCallsOptions {
  readonly commandTimeout: number;
  readonly breaker: { readonly errors: number; readonly open: number };
}

/**
 * The calls to the store, each bounded in time whatever its client does, and none while the store is known to be away.
 * A call that ran out of time may still be carried out later.
 */
export class StoreCalls {
  readonly breaker: CircuitBreaker;
  readonly timeouts = new Timeouts();
  /** Of the calls: an answer that has arrived counts, whatever the clock says. */
  readonly limits = new Timeouts({ countsStandstills: false });
  readonly underWay = new LinkedList<BoundedCall<unknown>>();
  /** How often the store has answered. */
  answers = 0;
  private readonly onBack: (() => void)[] = [];
  private stopped = false;

  constructor(
    readonly store: CacheStore,
    readonly options: StoreCallsOptions,
    warnings: WarningLimiter,
  ) {
    this.breaker = new CircuitBreaker(
      options.breaker,
      () => store.ping(),
      () => {
        const why = store.diagnose?.()?.message;
        warnings.warn(`Redis does not answer: the cache does without it until it does${why ? ` (${why})` : ''}`);
        this.failAll();
      },
      () => this.onBack.forEach((listener) => listener()),
    );
  }

  /** Whenever the store answers again after it was left alone. */
  whenBack(listener: () => void): void {
    this.onBack.push(listener);
  }

  /**
   * Settles once, within `commandTimeout` of the send. `late` is told of an answer that came after that: it may have
   * changed what somebody must know of.
   */
  send<T>(
    operation: string,
    key: string,
    call: () => Pending<T>,
    answered: (answer: T) => void,
    failed: (error: CacheBackendError) => void,
    late?: (answer: T) => void,
  ): void {
    if (this.stopped) return failed(this.failure(operation, key, 'the application has ended'));
    if (this.breaker.isOpen) return failed(this.failure(operation, key, 'Redis is left alone after it failed'));
    const bounded = new BoundedCall(this, operation, key, answered, failed, late);
    try {
      call().then(bounded.onAnswer, bounded.onError);
    } catch (error) {
      bounded.onError(error);
    }
  }

  run<T>(operation: string, key: string, call: () => Pending<T>, late?: (answer: T) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      this.send(operation, key, call, resolve, reject, late);
    });
  }

  /**
   * What takes many commands: it may take as long as it needs while the store answers a PING within `commandTimeout`.
   * Given up, it may still go on.
   */
  async runLong<T>(operation: string, work: () => Promise<T>): Promise<T> {
    await this.run(operation, '', () => this.store.ping());
    const result = work();
    const settled = result.then(
      () => true,
      () => true,
    );
    const pause = () => sleep(this.options.commandTimeout, false, { ref: false });
    while (!(await Promise.race([settled, pause()]))) await this.run(operation, '', () => this.store.ping());
    return result;
  }

  failure(operation: string, key: string, why: string, cause?: unknown): CacheBackendError {
    const about = key === '' ? '' : ` of "${key}"`;
    return new CacheBackendError(`Cache: ${operation}${about} failed: ${why}`, key === '' ? [] : [key], cause);
  }

  /** From now on the store is asked however often it has failed. */
  insist(): void {
    this.breaker.stop();
  }

  stop(): void {
    this.stopped = true;
    this.breaker.stop();
    this.failAll();
  }

  private failAll(): void {
    for (const call of this.underWay.toArray()) call.abandon('Redis does not answer');
  }
}

class BoundedCall<T> implements Expiring {
  private readonly timeout: Timeout;
  private readonly place: Place<BoundedCall<unknown>>;
  private readonly answersBefore: number;
  private over = false;

  constructor(
    private readonly calls: StoreCalls,
    private readonly operation: string,
    private readonly key: string,
    private readonly answered: (answer: T) => void,
    private readonly failed: (error: CacheBackendError) => void,
    private readonly late: ((answer: T) => void) | undefined,
  ) {
    this.answersBefore = calls.answers;
    this.timeout = calls.limits.start(calls.options.commandTimeout, this);
    this.place = calls.underWay.push(this as BoundedCall<unknown>);
  }

  readonly onAnswer = (answer: T): void => {
    this.calls.answers += 1;
    this.calls.breaker.answered();
    if (this.over) return this.late?.(answer);
    this.end();
    this.answered(answer);
  };

  readonly onError = (error: unknown): void => {
    if (this.over) return;
    this.end();
    // What Redis itself says is an answer.
    if (error instanceof Error && error.name === 'ReplyError') this.calls.breaker.answered();
    else this.calls.breaker.failed();
    const cause = this.calls.store.diagnose?.(error) ?? error;
    const why = cause instanceof Error ? cause.message : String(cause);
    this.failed(this.calls.failure(this.operation, this.key, why, cause));
  };

  expire(): void {
    // After a pause of the process, the answer may be there and not read yet.
    setImmediate(() => {
      if (this.over) return;
      const silent = this.calls.answers === this.answersBefore;
      this.abandon(`no answer within ${this.calls.options.commandTimeout} ms`);
      if (silent) this.calls.breaker.trip();
      else this.calls.breaker.failed();
    });
  }

  abandon(why: string): void {
    if (this.over) return;
    this.end();
    const cause = this.calls.store.diagnose?.();
    this.failed(this.calls.failure(this.operation, this.key, cause ? `${why}: ${cause.message}` : why, cause));
  }

  private end(): void {
    this.over = true;
    this.timeout.leave();
    this.place.leave();
  }
}
