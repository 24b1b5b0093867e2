import { Inject, Injectable, type CanActivate, type ExecutionContext, type Type } from '@nestjs/common';
import { HttpAdapterHost, ModulesContainer } from '@nestjs/core';
import { logOnce } from '../errors/http-error.js';
import { PrimitiveError, RateLimitExceededError } from '../errors/primitive-errors.js';
import { derivedName } from '../keys/key-part.js';
import type { RateLimitDecision, RateLimitState } from '../primitives/rate-limit/rate-limit-decision.js';
import { RateLimiter } from '../primitives/rate-limit/rate-limiter.js';
import { addressOf, clientOf, INVALID_ADDRESS, type LimitedRequest } from './client-key.js';
import { handlerName, placeOf } from './derived-names.js';
import {
  policySettings,
  RATE_LIMIT_POLICY,
  type RateLimitPolicyOptions,
  type RateLimitPolicySettings,
} from './rate-limit-policy.js';

interface NamedPolicy {
  readonly policy: RateLimitPolicySettings;
  /** As clients see it. */
  readonly name: string;
  /** Begins the names of its counts. */
  readonly count: string;
}

/** The policies that a request was counted by: a route may have a guard of its own besides a global one. */
const COUNTED = new WeakMap<object, Set<RateLimitPolicySettings>>();

/**
 * Limits HTTP requests by the policy of their route (`@RateLimitPolicy`), on Express and Fastify:
 * `@UseGuards(RateLimitGuard)`, or for all routes `{ provide: APP_GUARD, useClass: RateLimitGuard.of({ limit: 100, per:
 * '1m' }) }`, whose policy is that of routes without one. Answers 429 with `Retry-After`, and tells clients the state
 * of their limit by `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11).
 *
 * Requests that are not HTTP pass uncounted, and so do those without a policy. Several guards count a request once for
 * each policy.
 *
 * @throws RateLimitExceededError when the limit is reached
 * @throws PrimitiveBackendError when the store fails and `onFailure` is 'closed'
 */
@Injectable()
export class RateLimitGuard implements CanActivate {
  /** @internal */
  constructor(
    @Inject(RateLimiter) private readonly limiter: RateLimiter,
    @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
  ) {
    limiter.warnOfLackOfApplication('RateLimitGuard');
  }

  /**
   * A guard with a policy for routes that have none.
   *
   * @throws PrimitiveConfigError for an option that it cannot take
   */
  static of(options: RateLimitPolicyOptions): Type<RateLimitGuard> {
    const policy = policySettings(options);
    @Injectable()
    class RateLimitGuardWithPolicy extends RateLimitGuard {
      protected override readonly policy = policy;
    }
    return RateLimitGuardWithPolicy;
  }

  /** @internal The policy of routes that have none. */
  protected readonly policy: RateLimitPolicySettings | undefined;

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http') return true;
    const found = this.policyOf(context);
    if (!found || (await found.policy.skip?.(context))) return true;
    const { policy, name } = found;
    if (isCounted(context.switchToHttp().getRequest<object>(), policy)) return true;
    const { allowed, decidedBy, retryAfter, states, limit } = await this.take(context, found);
    if (policy.headers && decidedBy !== 'nobody') this.send(context, rateLimitFields(name, states));
    if (allowed) return true;
    this.send(context, { 'Retry-After': String(seconds(retryAfter)) });
    throw new RateLimitExceededError(name, limit, retryAfter);
  }

  /** Logs at once: an exception filter of the application may answer in its own way. */
  private async take(context: ExecutionContext, { policy, count }: NamedPolicy): Promise<RateLimitDecision> {
    try {
      const request = context.switchToHttp().getRequest<LimitedRequest>();
      const client = clientOf(request, policy.key);
      if (client === INVALID_ADDRESS) this.warnOfAddress();
      if (policy.ofAddress && client.startsWith('header:')) {
        const address = addressOf(request);
        if (address === INVALID_ADDRESS) this.warnOfAddress();
        const decision = await this.limiter.take(`${count}:address:${address}`, policy.ofAddress);
        if (!decision.allowed) return decision;
      }
      return await this.limiter.take(`${count}:${client}`, policy.limits);
    } catch (error) {
      if (error instanceof PrimitiveError) logOnce(this.limiter.log, error);
      throw error;
    }
  }

  private warnOfAddress(): void {
    const line =
      'A request has an address (request.ip) that is none, so that it is limited with all others of this kind, as one ' +
      'client: let "trust proxy" (Express) or trustProxy (Fastify) trust only proxies that send addresses';
    this.limiter.log.warn(line, line);
  }

  private policyOf(context: ExecutionContext): NamedPolicy | undefined {
    const [handler, controller] = [context.getHandler(), context.getClass()];
    const places = [
      { target: handler, name: () => `${controller.name}.${handlerName(controller, handler)}`, method: handler },
      { target: controller, name: () => controller.name, method: undefined },
    ];
    for (const { target, name, method } of places) {
      const policy = Reflect.getMetadata(RATE_LIMIT_POLICY, target) as RateLimitPolicySettings | null | undefined;
      if (policy === null) return undefined;
      if (policy) return this.named(policy, name(), () => placeOf(this.modules, controller, method));
    }
    return this.policy && this.named(this.policy, 'default', () => 'default');
  }

  /** A name that the developer gives is shared by all applications at the store; one that is made up is not. */
  private named(policy: RateLimitPolicySettings, name: string, place: () => string): NamedPolicy {
    if (policy.name !== undefined) {
      return { policy, name: policy.name, count: derivedName('http', undefined, [policy.name]) };
    }
    return { policy, name, count: derivedName('http', this.limiter.backends.options.application, [place()]) };
  }

  private send(context: ExecutionContext, fields: Readonly<Record<string, string>>): void {
    const response: unknown = context.switchToHttp().getResponse();
    for (const [name, value] of Object.entries(fields)) this.host.httpAdapter.setHeader(response, name, value);
  }
}

/** Notes that the request is counted by the policy. `true` if another guard has let it pass by that. */
function isCounted(request: object, policy: RateLimitPolicySettings): boolean {
  const policies = COUNTED.get(request) ?? new Set();
  COUNTED.set(request, policies);
  if (policies.has(policy)) return true;
  policies.add(policy);
  return false;
}

/**
 * The header fields of draft-ietf-httpapi-ratelimit-headers-11, as lists of structured fields (RFC 9651), one item for
 * each limit; several are numbered in the order of the policy:
 *
 * - `RateLimit-Policy: "api";q=100;w=60`: the limit, and its `per` in seconds, rounded up. `nrl-burst` tells a burst
 *   that differs from the limit.
 * - `RateLimit: "api";r=42;t=1`: the units remaining, and the seconds until one more is there, rounded up: until then
 *   the client can use no more than `r`.
 */
function rateLimitFields(policy: string, states: readonly RateLimitState[]): Readonly<Record<string, string>> {
  const named = states.map((state, index) => ({
    state,
    name: quoted(states.length === 1 ? policy : `${policy}-${index + 1}`),
  }));
  return {
    'RateLimit-Policy': named
      .map(({ name, state: { limit, per, burst } }) => {
        const parameters = `;q=${limit};w=${seconds(per)}`;
        return `${name}${parameters}${burst === limit ? '' : `;nrl-burst=${burst}`}`;
      })
      .join(', '),
    RateLimit: named
      .map(({ name, state: { remaining, nextAfter } }) => `${name};r=${remaining};t=${seconds(nextAfter)}`)
      .join(', '),
  };
}

/** Whole seconds, rounded up, so that a client never comes too early. */
function seconds(milliseconds: number): number {
  return Math.ceil(milliseconds / 1_000);
}

/** A string of a structured field: printable ASCII. */
function quoted(text: string): string {
  return `"${text.replaceAll(/[^ -~]/g, '?').replaceAll(/["\\]/g, String.raw`\$&`)}"`;
}
