import type { Attributes } from '@opentelemetry/api';
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

/** The class of an error, which the semantic conventions call its type. */
export function typeOf(error: unknown): string {
  return error instanceof Error ? error.name : '_OTHER';
}
