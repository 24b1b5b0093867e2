import type { Warnings } from '../../errors/limited-log.js';
import type { Pending } from '../../contracts/pending.js';
import type { HitAnswer, HitRequest, RateLimitStore } from '../../contracts/primitives/rate-limit-store.js';
import type { LockSource } from '../../events/lock-channels.js';
import type { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import type { PrimitiveRuntime } from '../primitive-runtime.js';
import type { Usage } from './rate-limit-decision.js';
import type { OnRateLimitFailure, RateLimitSettings } from './rate-limit-options.js';
import { RateLimitCalls } from './rate-limit-calls.js';

/** What a call takes: at least `least` and at most `most` units. */
export interface Units {
  readonly least: number;
  readonly most: number;
}

export interface Taken extends Usage {
  readonly granted: number;
}

/** The answer of a store, or of this process alone. */
export interface Decided<T> {
  readonly answer: T;
  readonly decidedBy: 'store' | 'process';
}

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
    const keeper = backends.get(backend).calls.backend;
    this.calls = new RateLimitCalls(keeper, backends.options.commandTimeout, this.warnings);
    backends.whenStopping(async () => this.calls.stop());
  }

  /** @throws PrimitiveBackendError where `onFailure` is 'closed' */
  async take(key: string, { limits, onFailure }: RateLimitSettings, units: Units): Promise<Taken> {
    const request = { key, limits, ...units };
    const decided = await this.decide(onFailure, 'take', key, (store) => store.take(request));
    if (!decided) return { allowed: true, granted: units.least, used: limits.map(() => 0), decidedBy: 'nobody' };
    const { granted, used } = decided.answer;
    return { allowed: granted > 0, granted, used, decidedBy: decided.decidedBy };
  }

  async peek(key: string, { limits, onFailure, cost }: RateLimitSettings): Promise<Usage> {
    const decided = await this.decide(onFailure, 'peek', key, (store) => store.peek({ key, limits }));
    if (!decided) return { allowed: true, used: limits.map(() => 0), decidedBy: 'nobody' };
    const { answer: used, decidedBy } = decided;
    const allowed = limits.every(
      ({ interval, capacity }, index) => (used[index] as number) + cost * interval <= capacity,
    );
    return { allowed, used, decidedBy };
  }

  /** @throws PrimitiveBackendError */
  async reset(key: string, { limits }: RateLimitSettings): Promise<void> {
    await this.local.reset({ key, limits });
    await this.calls.run('reset', key, () => this.store.reset({ key, limits }));
  }

  /** `undefined` where nobody counted. @throws PrimitiveBackendError where `onFailure` is 'closed' */
  hit(request: HitRequest, onFailure: OnRateLimitFailure): Promise<Decided<HitAnswer> | undefined> {
    return this.decide(onFailure, 'count', request.key, (store) => store.hit(request));
  }

  /** Asks the store, and on its failure what `onFailure` says; `undefined` where nobody decides. */
  private decide<T>(
    onFailure: OnRateLimitFailure,
    operation: string,
    key: string,
    ask: (store: RateLimitStore) => Pending<T>,
  ): Promise<Decided<T> | undefined> {
    return new Promise((resolve, reject) => {
      if (this.runtime.isStopped) throw this.calls.failure(operation, key, 'the application has ended');
      const failed = (error: PrimitiveBackendError) => {
        if (onFailure === 'closed') reject(error);
        else resolve(this.without(onFailure, error, ask));
      };
      const answered = (answer: T) => resolve({ answer, decidedBy: 'store' });
      this.calls.ask(operation, key, () => ask(this.store), answered, failed);
    });
  }

  private async without<T>(
    onFailure: OnRateLimitFailure,
    error: PrimitiveBackendError,
    ask: (store: RateLimitStore) => Pending<T>,
  ): Promise<Decided<T> | undefined> {
    // The breaker writes a warning of its own, and the call that opens it fails before.
    await Promise.resolve();
    if (!this.calls.breaker.isOpen) this.warnings.warn(`${error.message}. It goes on with onFailure: '${onFailure}'`);
    return onFailure === 'open' ? undefined : { answer: await ask(this.local), decidedBy: 'process' };
  }
}
