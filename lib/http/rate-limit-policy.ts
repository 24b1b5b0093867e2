import { SetMetadata, type ExecutionContext } from '@nestjs/common';
import { callable, instance, trueOrFalse } from '../options/checks.js';
import { fixedOptions } from '../options/fixed-options.js';
import { primitiveOption } from '../options/option-checks.js';
import { OptionTable, settingOf } from '../options/option-table.js';
import { rateLimitSettings, type RateLimitOptions } from '../primitives/rate-limit/rate-limit-options.js';
import type { ClientKey } from './client-key.js';

/** What the guard does with the requests of some routes. */
export type RateLimitPolicyOptions = RateLimitOptions & {
  /**
   * Names the policy to clients, and its counts: policies of one name and limit share them.
   * @default `Class.method` of a route, `Class` of a controller, 'default' of a guard
   */
  name?: string;
  /** What tells clients apart. @default 'ip' */
  key?: ClientKey;
  /**
   * With `key: 'header:...'`, which any client can invent: how many requests of one address are allowed in `per`,
   * whatever their headers say. `false` where the header was checked before the guard runs. Of several limits, this is
   * for the first, and the others grow as it does.
   * @default ten times the limit
   */
  perAddress?: number | false;
  /** Requests for which it answers `true` are not counted. @default none */
  skip?: (context: ExecutionContext) => boolean | Promise<boolean>;
  /** Whether to send `RateLimit` and `RateLimit-Policy`. `Retry-After` is always sent with a 429. @default true */
  headers?: boolean;
};

/** @internal A policy, checked. */
export interface RateLimitPolicySettings {
  readonly name: string | undefined;
  readonly key: ClientKey;
  readonly skip: ((context: ExecutionContext) => boolean | Promise<boolean>) | undefined;
  readonly headers: boolean;
  readonly limits: RateLimitOptions;
  /** The limits of one address, where clients may invent what tells them apart. */
  readonly ofAddress: RateLimitOptions | undefined;
}

type Own = Omit<RateLimitPolicySettings, 'limits' | 'ofAddress'> & { readonly perAddress: number | false | undefined };

const setting = settingOf<Own>();
const POLICY = new OptionTable<Pick<RateLimitPolicyOptions, keyof Own>, Own>(
  primitiveOption,
  'rate limit option',
  '',
  { name: undefined, key: 'ip', skip: undefined, headers: true, perAddress: undefined },
  {
    name: setting('name', instance(isPolicyName, 'a name of printable ASCII characters')),
    key: setting('key', instance(isClientKey, "'ip', 'header:<name>', 'user:<property>' or a function of the request")),
    skip: setting('skip', callable<NonNullable<Own['skip']>>()),
    headers: setting('headers', trueOrFalse),
    perAddress: setting('perAddress', instance(isPerAddress, 'a whole number from 1 on, or false')),
  },
);

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function policySettings(options: RateLimitPolicyOptions): RateLimitPolicySettings {
  const { name, key, skip, headers, perAddress, ...limits } = primitiveOption.object(
    'options',
    options,
    'a policy',
  ) as typeof options;
  const { perAddress: bound, ...own } = POLICY.settings({ name, key, skip, headers, perAddress });
  rateLimitSettings(limits);
  const isClaim = typeof own.key === 'string' && own.key.startsWith('header:');
  if (bound !== undefined && !isClaim) {
    throw primitiveOption.conflict(`Option "perAddress" is for the key 'header:<name>'; remove it`);
  }
  const ofAddress = isClaim && bound !== false ? limitsOfAddress(limits, bound) : undefined;
  return { ...own, limits: fixedOptions(limits), ofAddress: ofAddress && fixedOptions(ofAddress) };
}

/** As wide as the one, in each of them. */
function limitsOfAddress(limits: RateLimitOptions, bound: number | undefined): RateLimitOptions {
  const rules = limits.limits ?? [limits];
  const first = rules[0]?.limit ?? 1;
  const times = (bound ?? 10 * first) / first;
  const least = limits.cost ?? 1;
  const wider = rules.map(({ limit, per, burst }) => ({
    per,
    limit: Math.max(1, Math.round(limit * times)),
    burst: Math.max(least, Math.round((burst ?? limit) * times)),
  }));
  const { limits: _limits, limit: _limit, per: _per, burst: _burst, localShare: _share, ...take } = limits;
  return { ...take, limits: wider };
}

function isPerAddress(value: unknown): value is number | false {
  return value === false || (Number.isSafeInteger(value) && (value as number) >= 1);
}

/** @internal */
export const RATE_LIMIT_POLICY = 'nest-redis-lock:rate-limit-policy';

/**
 * The policy of a route, or of all routes of a controller, for `RateLimitGuard`. That of a route replaces that of its
 * controller, and either replaces that of the guard.
 *
 * @throws PrimitiveConfigError for an option that it cannot take
 */
export function RateLimitPolicy(options: RateLimitPolicyOptions): MethodDecorator & ClassDecorator {
  return SetMetadata(RATE_LIMIT_POLICY, policySettings(options));
}

/** `RateLimitGuard` lets requests to the route, or to all routes of the controller, pass uncounted. */
export function SkipRateLimit(): MethodDecorator & ClassDecorator {
  return SetMetadata(RATE_LIMIT_POLICY, null);
}

function isPolicyName(value: unknown): value is string {
  return typeof value === 'string' && /^[ -~]+$/.test(value);
}

function isClientKey(value: unknown): value is ClientKey {
  return value === 'ip' || typeof value === 'function' || (typeof value === 'string' && /^(header|user):./.test(value));
}
