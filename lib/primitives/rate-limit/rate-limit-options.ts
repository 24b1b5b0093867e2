import type { StoredLimit } from '../../contracts/primitive-stores.js';
import { duration, instance, oneOf, wholeNumber, type Check, type Duration } from '../../options/checks.js';
import { templateOf } from '../../options/fixed-options.js';
import { primitiveOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** What a call gets while the store does not answer. @inline */
export type OnRateLimitFailure = 'open' | 'closed' | 'local';

/** How often something is allowed. @inline */
export type RateLimitRule = {
  /** The units that come back in `per`: the rate that is allowed in the long run. */
  limit: number;
  /** The time in which `limit` units come back. */
  per: Duration;
  /**
   * The most units that can be taken at once, after a rest. In any time span, at most `burst` units are allowed, and
   * `limit / per` times the span: with the default, up to twice the `limit` in one `per`.
   * @default `limit`
   */
  burst?: number;
};

/** How a call takes units. */
export interface TakeOptions {
  /** The units that this call takes: at most the `burst`. @default 1 */
  cost?: number;
  /**
   * What a call gets while the store does not answer: it is allowed (`'open'`), it rejects with `PrimitiveBackendError`
   * (`'closed'`), or this process keeps the limit alone (`'local'`): then `n` processes allow at most `n` times as
   * much.
   * @default 'local'
   */
  onFailure?: OnRateLimitFailure;
  /**
   * For hot keys: the process takes up to this many units at a time and spends them without the store. At most the
   * `burst`. In any time span, `n` processes allow up to `n` times as many units more than without it.
   * @default none: every call asks the store
   */
  localShare?: number;
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

/** One limit. @inline */
export interface OneRateLimit extends RateLimitRule, TakeOptions {
  /** Several limits of one key, in the place of `limit`, `per` and `burst`. */
  limits?: never;
}

/** Several limits of one key: a call takes of all of them, or of none. @inline */
export interface SeveralRateLimits extends TakeOptions {
  /** One to eight limits. */
  limits: readonly RateLimitRule[];
  /** Each of the `limits` has its own. */
  limit?: never;
  /** Each of the `limits` has its own. */
  per?: never;
  /** Each of the `limits` has its own. */
  burst?: never;
}

/** One limit (`{ limit: 10, per: '1s' }`), or several (`{ limits: [...] }`), and how a call takes units. */
export type RateLimitOptions = OneRateLimit | SeveralRateLimits;

/** A limit, checked. */
export interface ResolvedLimit extends StoredLimit {
  readonly limit: number;
  /** In ms. */
  readonly per: number;
  readonly burst: number;
}

/** `RateLimitOptions` checked and complete. */
export interface RateLimitSettings {
  readonly limits: readonly ResolvedLimit[];
  readonly cost: number;
  readonly onFailure: OnRateLimitFailure;
  readonly localShare: number | undefined;
  readonly backend: string | undefined;
  /** The key template of the decorator, for events. */
  readonly template: string | undefined;
}

interface GivenOptions extends TakeOptions, Partial<RateLimitRule> {
  limits?: readonly RateLimitRule[];
}

interface GivenSettings extends Omit<RateLimitSettings, 'limits' | 'template'>, RuleSettings {
  readonly limits: readonly RateLimitRule[] | undefined;
}

interface RuleSettings {
  readonly limit: number | undefined;
  readonly per: number | undefined;
  readonly burst: number | undefined;
}

/** Redis serves no other client while it looks at the limits of a call. */
const MOST_LIMITS = 8;
/** Beyond this (µs, about 100 years), times since 1970 would lose their microseconds. */
const LONGEST = 3e15;

const noRule: RuleSettings = { limit: undefined, per: undefined, burst: undefined };
const ruleSetting = settingOf<RuleSettings>();
const RULE = {
  limit: ruleSetting('limit', wholeNumber),
  per: ruleSetting('per', duration(1)),
  burst: ruleSetting('burst', wholeNumber),
};
const RULE_OPTIONS = new OptionTable<RateLimitRule, RuleSettings>(
  primitiveOption,
  'rate limit option',
  '',
  noRule,
  RULE,
);

const setting = settingOf<GivenSettings>();
const nameOfBackend: Check<string> = instance((value) => typeof value === 'string', 'the name of a backend');
const OPTIONS = new OptionTable<GivenOptions, GivenSettings>(
  primitiveOption,
  'rate limit option',
  '',
  { ...noRule, limits: undefined, cost: 1, onFailure: 'local', localShare: undefined, backend: undefined },
  {
    limit: setting('limit', wholeNumber),
    per: setting('per', duration(1)),
    burst: setting('burst', wholeNumber),
    limits: setting('limits', listOfLimits),
    cost: setting('cost', wholeNumber),
    onFailure: setting('onFailure', oneOf('open', 'closed', 'local')),
    localShare: setting('localShare', wholeNumber),
    backend: setting('backend', nameOfBackend),
  },
);

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function rateLimitSettings(options: RateLimitOptions): RateLimitSettings {
  const given = OPTIONS.settings(
    primitiveOption.object('options', options, 'an object such as { limit: 10, per: "1s" }'),
  );
  const { limit, per, burst, limits: several, ...settings } = given;
  if (several && (limit ?? per ?? burst) !== undefined) {
    throw primitiveOption.conflict(
      'Options "limits" and "limit", "per" or "burst" exclude each other; give one of them',
    );
  }
  const limits = several
    ? several.map((each) => resolved(RULE_OPTIONS.settings(primitiveOption.object('limits', each, 'a list of limits'))))
    : [resolved({ limit, per, burst })];
  const least = Math.min(...limits.map((each) => each.burst));
  for (const name of ['cost', 'localShare'] as const) {
    const units = settings[name] ?? 1;
    primitiveOption.require(units <= least, name, units, `at most the burst (${least}), which is never exceeded`);
  }
  return { ...settings, limits, template: templateOf(options) };
}

function listOfLimits(value: unknown, option: string): readonly RateLimitRule[] {
  const fits = Array.isArray(value) && value.length >= 1 && value.length <= MOST_LIMITS;
  primitiveOption.require(
    fits,
    option,
    value,
    `a list of one to ${MOST_LIMITS} limits such as { limit: 10, per: "1s" }`,
  );
  return value as readonly RateLimitRule[];
}

function resolved({ limit, per, burst = limit }: RuleSettings): ResolvedLimit {
  if (limit === undefined) throw primitiveOption.refused('limit', limit, 'how many units come back in "per"');
  if (per === undefined) throw primitiveOption.refused('per', per, "the time in which they come back, such as '1s'");
  // Rounded up, so that no more than the limit is ever allowed.
  const interval = Math.ceil((per * 1_000) / limit);
  const units = burst as number;
  const capacity = interval * units;
  primitiveOption.require(limit <= per * 1_000, 'limit', limit, `at most one unit for each microsecond of "per"`);
  primitiveOption.require(capacity <= LONGEST, 'per', per, 'less than 100 years until the whole "burst" is back');
  return { id: `${limit}/${per}/${units}`, limit, per, burst: units, interval, capacity };
}
