import type { RateLimitState } from '../../primitives/rate-limit/rate-limit-decision.js';

/** The values of the header fields of one policy. */
export interface RateLimitFields {
  readonly 'RateLimit-Policy': string;
  readonly RateLimit: string;
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
export function rateLimitFields(policy: string, states: readonly RateLimitState[]): RateLimitFields {
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
export function seconds(milliseconds: number): number {
  return Math.ceil(milliseconds / 1_000);
}

/** A string of a structured field: printable ASCII. */
function quoted(text: string): string {
  return `"${text.replaceAll(/[^ -~]/g, '?').replaceAll(/["\\]/g, String.raw`\$&`)}"`;
}
