import type { LockSource } from '../../events/lock-channels.js';
import { rateLimitChannels } from '../../events/rate-limit-channels.js';
import type { RateLimitDecision } from './rate-limit-decision.js';
import type { RateLimitSettings } from './rate-limit-options.js';

const { allowed, refused, failed } = rateLimitChannels;

/** Publishes how a call was decided, to those who listen. */
export function publishDecision(
  source: LockSource,
  key: string,
  { template, cost }: Pick<RateLimitSettings, 'template' | 'cost'>,
  decision: Pick<RateLimitDecision, 'allowed' | 'decidedBy' | 'retryAfter'>,
): void {
  const { decidedBy, retryAfter } = decision;
  const { backend, label } = source;
  if (decision.allowed) {
    if (allowed.hasSubscribers) allowed.publish({ key, template, backend, label, cost, decidedBy });
  } else if (refused.hasSubscribers) {
    refused.publish({ key, template, backend, label, cost, decidedBy, retryAfter });
  }
}

/** Publishes that a call was not decided, to those who listen. */
export function publishFailure(source: LockSource, key: string, template: string | undefined, error: unknown): void {
  if (failed.hasSubscribers) failed.publish({ key, template, backend: source.backend, label: source.label, error });
}
