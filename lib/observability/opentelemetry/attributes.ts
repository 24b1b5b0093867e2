import type { Attributes, Meter } from '@opentelemetry/api';
import type { LockCall } from '../../events/lock-channels.js';

const NAMESPACE = 'nest_redis_lock';

/** The names of the attributes. Those of the semantic conventions have no prefix of ours. */
export const ATTRIBUTE = {
  template: `${NAMESPACE}.template`,
  backend: `${NAMESPACE}.backend`,
  keys: `${NAMESPACE}.keys`,
  owner: `${NAMESPACE}.owner`,
  fencingToken: `${NAMESPACE}.fencing_token`,
  reentrant: `${NAMESPACE}.reentrant`,
  handedOver: `${NAMESPACE}.handed_over`,
  outcome: `${NAMESPACE}.outcome`,
  level: `${NAMESPACE}.cache.level`,
  decidedBy: `${NAMESPACE}.rate_limit.decided_by`,
  by: `${NAMESPACE}.cache.invalidated_by`,
  errorType: 'error.type',
} as const;

/** The attributes of the metrics of a call: no key, which would make a series for each. */
export function seriesOf(
  { backend, template }: Pick<LockCall, 'backend' | 'template'>,
  errorType?: string,
): Attributes {
  return {
    [ATTRIBUTE.backend]: backend,
    [ATTRIBUTE.template]: template ?? 'none',
    ...(errorType !== undefined && { [ATTRIBUTE.errorType]: errorType }),
  };
}

const OTHER = '_OTHER';

/** The class of an error, which the semantic conventions call its type. */
export function typeOf(error: unknown): string {
  try {
    return error instanceof Error ? error.name : OTHER;
  } catch {
    return OTHER;
  }
}

/** Those that the semantic conventions advise for durations of requests, and shorter ones. */
const BOUNDARIES = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30];

/** A histogram in seconds, as the semantic conventions ask for. Returns the function that records ms. */
export function durations(meter: Meter, name: string, description: string): (ms: number, of: Attributes) => void {
  const advice = { explicitBucketBoundaries: BOUNDARIES };
  const histogram = meter.createHistogram(name, { description, unit: 's', advice });
  return (ms, of) => histogram.record(ms / 1_000, of);
}
