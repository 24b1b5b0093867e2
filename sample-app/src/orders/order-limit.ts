import type { LimitedRequest, RateLimitPolicyOptions } from 'nest-redis-lock';
import { PRIMITIVE_BACKEND } from '../primitives.js';

/** How often one customer may order: `limit` times in `per` ms, and as often at once. */
export const ORDER_LIMIT = { limit: 20, per: 10_000 } as const;

export const ORDER_POLICY: RateLimitPolicyOptions = {
  ...ORDER_LIMIT,
  name: 'orders',
  key: customerOf,
  backend: PRIMITIVE_BACKEND,
};

/** Where customers have accounts, authentication names them. A request without a customer counts by its address. */
function customerOf(request: LimitedRequest): string | undefined {
  const { body } = request as { readonly body?: { readonly customer?: unknown } };
  return typeof body?.customer === 'string' ? body.customer : undefined;
}
