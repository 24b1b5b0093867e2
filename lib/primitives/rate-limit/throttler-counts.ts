import type { HitAnswer } from '../../contracts/primitive-stores.js';
import { PrimitiveKeyError } from '../../errors/primitive-errors.js';
import { derivedName, whyNotAName } from '../../keys/key-part.js';
import { oneOf, instance } from '../../options/checks.js';
import { primitiveOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import { type RateLimitCounts, publishDecision, publishFailure } from './rate-limit-counts.js';
import type { DecidedBy } from './rate-limit-decision.js';
import type { OnRateLimitFailure, TakeOptions } from './rate-limit-options.js';

/** Options of `RateLimiter.throttlerStorage`. */
type ThrottlerCountsOptions = Pick<TakeOptions, 'onFailure' | 'backend'>;

/** What `ThrottlerStorage.increment` of @nestjs/throttler answers. Times in whole seconds, rounded up. @inline */
type ThrottlerCount = {
  totalHits: number;
  timeToExpire: number;
  isBlocked: boolean;
  timeToBlockExpire: number;
};

interface Settings {
  readonly onFailure: OnRateLimitFailure;
  readonly backend: string | undefined;
}

const setting = settingOf<Settings>();
const OPTIONS = new OptionTable<ThrottlerCountsOptions, Settings>(
  primitiveOption,
  'throttler option',
  '',
  { onFailure: 'local', backend: undefined },
  {
    onFailure: setting('onFailure', oneOf('open', 'closed', 'local')),
    backend: setting(
      'backend',
      instance((value) => typeof value === 'string', 'the name of a backend'),
    ),
  },
);

/**
 * Counts for @nestjs/throttler, in fixed windows: a window begins with its first hit and lasts `ttl` ms. The hit beyond
 * `limit` blocks the key for `blockDuration` ms; hits in that time do not count, and a new window begins after it. With
 * a `blockDuration` of 0 the key is blocked until its window ends.
 */
export class ThrottlerCounts {
  private readonly settings: Settings;

  /** @internal */
  constructor(
    private readonly countsOf: (backend: string | undefined) => RateLimitCounts,
    options: ThrottlerCountsOptions,
    private readonly application: string | undefined,
  ) {
    this.settings = OPTIONS.settings(
      primitiveOption.object('options', options, "an object such as { onFailure: 'open' }"),
    );
  }

  /**
   * Counts one hit. Durations in ms.
   *
   * @throws PrimitiveBackendError when the store fails and `onFailure` is 'closed'
   * @throws PrimitiveConfigError for a duration or a limit that is no number from 0 on
   * @throws PrimitiveKeyError for a key, or a name of a throttler, that is not text
   */
  increment(
    key: string,
    ttl: number,
    limit: number,
    blockDuration: number,
    throttlerName: string,
  ): Promise<ThrottlerCount> {
    return new Promise((resolve, reject) => {
      const { onFailure, backend } = this.settings;
      const window = milliseconds('ttl', ttl, 1);
      const block = milliseconds('blockDuration', blockDuration, 0);
      primitiveOption.require(typeof limit === 'number' && limit >= 0, 'limit', limit, 'a number from 0 on');
      for (const part of [throttlerName, key]) {
        const why = part === '' ? undefined : whyNotAName(part);
        if (why) throw new PrimitiveKeyError(`The throttler counts under ${why}; give a string`);
      }
      const name = derivedName('throttler', this.application, [throttlerName, key]);
      const request = { key: name, window, limit, block };
      const counts = this.countsOf(backend);
      const counted = (answer: HitAnswer | undefined, decidedBy: DecidedBy) => {
        const { hits, left, blocked } = answer ?? uncounted(window);
        const decision = { allowed: !blocked, decidedBy, retryAfter: left };
        publishDecision(counts.source, request.key, { template: undefined, cost: 1 }, decision);
        const seconds = Math.ceil(left / 1_000);
        resolve({
          totalHits: hits,
          timeToExpire: seconds,
          isBlocked: blocked,
          timeToBlockExpire: blocked ? seconds : 0,
        });
      };
      const failed = (error: unknown) => {
        publishFailure(counts.source, request.key, undefined, error);
        reject(error);
      };
      counts.hit(request, onFailure, counted, failed);
    });
  }
}

/** The answer where nobody counted: it is allowed. */
function uncounted(window: number): HitAnswer {
  return { hits: 1, left: window, blocked: false };
}

/** Whole milliseconds: without an end, Redis would keep the count for ever. */
function milliseconds(option: string, value: number, least: number): number {
  const whole = typeof value === 'number' ? Math.max(least, Math.ceil(value)) : Number.NaN;
  primitiveOption.require(Number.isSafeInteger(whole), option, value, 'milliseconds');
  return whole;
}
