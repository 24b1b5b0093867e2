import { Inject, Injectable } from '@nestjs/common';
import type { RateLimitStore } from '../../contracts/primitive-stores.js';
import type { LimitedLog } from '../../errors/limited-log.js';
import { PrimitiveKeyError, RateLimitExceededError } from '../../errors/primitive-errors.js';
import { whyNotAName } from '../../keys/key-part.js';
import type { LockBackends } from '../../lock/line/lock-backends.js';
import { OptionResolver } from '../../options/fixed-options.js';
import { PrimitiveRuntime } from '../runtime.js';
import { LocalShares } from './local-shares.js';
import { RateLimitCounts, publishDecision, publishFailure } from './rate-limit-counts.js';
import { decisionOf, type RateLimitDecision, type Usage } from './rate-limit-decision.js';
import {
  rateLimitSettings,
  type RateLimitOptions,
  type RateLimitSettings,
  type TakeOptions,
} from './rate-limit-options.js';
import { ThrottlerCounts } from './throttler-counts.js';

/** @internal Opens the limits that this process keeps alone, while the store of one backend does not answer. */
export const LOCAL_RATE_LIMITS = Symbol('nest-redis-lock:local-rate-limits');

/** The counts at one backend, and what this process holds of them. */
interface Keeper {
  readonly counts: RateLimitCounts;
  readonly shares: LocalShares;
}

/**
 * Limits how often something happens, over all processes that share a Redis.
 *
 * The algorithm is the Generic Cell Rate Algorithm (ITU-T I.371): a limit has `burst` units, each call takes its
 * `cost`, and units come back one by one, evenly, `limit` of them in `per`. One script decides on the clock of Redis.
 */
@Injectable()
export class RateLimiter {
  private readonly keepers = new Map<string | undefined, Keeper>();
  private readonly options = new OptionResolver<RateLimitOptions, RateLimitSettings>(rateLimitSettings);

  /** @internal */
  constructor(
    @Inject(PrimitiveRuntime) private readonly runtime: PrimitiveRuntime,
    @Inject(LOCAL_RATE_LIMITS) private readonly openLocal: () => RateLimitStore,
  ) {}

  /** @internal */
  get backends(): LockBackends {
    return this.runtime.backends;
  }

  /** @internal */
  get log(): LimitedLog {
    return this.runtime.backends.logger;
  }

  /** @internal Such applications share limits: they refuse too much, and nothing that they should refuse passes. */
  warnOfLackOfApplication(what: string): void {
    const lack = this.backends.lackOfApplication(what);
    if (lack !== undefined) this.log.warn(`${lack}. Until then, they share its limits`, lack);
  }

  /** Whether the application has ended. */
  get closed(): boolean {
    return this.runtime.isStopped;
  }

  /**
   * Takes units if there are enough of them in every limit, and tells whether it did.
   *
   * @throws PrimitiveBackendError when the store fails and `onFailure` is 'closed'
   * @throws PrimitiveConfigError for an option that it cannot take
   * @throws PrimitiveKeyError for a key that is not text
   */
  take(key: string, options: RateLimitOptions): Promise<RateLimitDecision> {
    return new Promise((resolve, reject) => {
      const settings = this.settingsOf(key, options);
      const { counts, shares } = this.keeperOf(settings.backend);
      const { cost, localShare, template } = settings;
      const taken = (usage: Usage) => {
        const decision = decisionOf(settings, usage);
        publishDecision(counts.source, key, settings, decision);
        resolve(decision);
      };
      const failed = (error: unknown) => {
        publishFailure(counts.source, key, template, error);
        reject(error);
      };
      if (localShare === undefined) counts.askToTake(key, settings, { least: cost, most: cost }, taken, failed);
      else shares.take(key, settings, localShare).then(taken).catch(failed);
    });
  }

  /**
   * As `take`, but rejects a call that is not allowed.
   *
   * @throws RateLimitExceededError when there are too few units; its `retryAfter` says how long to wait
   */
  async consume(key: string, options: RateLimitOptions): Promise<RateLimitDecision> {
    const decision = await this.take(key, options);
    if (!decision.allowed) throw new RateLimitExceededError(key, decision.limit, decision.retryAfter);
    return decision;
  }

  /** What `take` would answer, without taking units. Units that processes hold by `localShare` count as taken. */
  async peek(key: string, options: RateLimitOptions): Promise<RateLimitDecision> {
    const settings = this.settingsOf(key, options);
    return decisionOf(settings, await this.keeperOf(settings.backend).counts.peek(key, settings));
  }

  /**
   * Gives back all units of the limits of a key. Another process with a `localShare` may deny calls until the time that
   * the store told it before.
   *
   * @throws PrimitiveBackendError when the store fails
   */
  async reset(key: string, options: RateLimitOptions): Promise<void> {
    const settings = this.settingsOf(key, options);
    const { counts, shares } = this.keeperOf(settings.backend);
    shares.forget(key, settings);
    await counts.reset(key, settings);
  }

  /**
   * A storage for `ThrottlerModule` of @nestjs/throttler 6, which counts over all processes: the option `storage` of
   * its `forRootAsync({ inject: [RateLimiter], useFactory })`.
   */
  throttlerStorage(options: Pick<TakeOptions, 'onFailure' | 'backend'> = {}): ThrottlerCounts {
    const { application } = this.backends.options;
    this.warnOfLackOfApplication('throttlerStorage');
    return new ThrottlerCounts((backend) => this.keeperOf(backend).counts, options, application);
  }

  private settingsOf(key: string, options: RateLimitOptions): RateLimitSettings {
    const why = whyNotAName(key);
    if (why) throw new PrimitiveKeyError(`The key of a rate limit is ${why}; give a string of one character or more`);
    return this.options.settingsOf(options);
  }

  private keeperOf(backend: string | undefined): Keeper {
    let keeper = this.keepers.get(backend);
    if (!keeper) {
      const counts = new RateLimitCounts(this.runtime, this.openLocal(), backend);
      keeper = { counts, shares: new LocalShares(counts) };
      this.keepers.set(backend, keeper);
    }
    return keeper;
  }
}
