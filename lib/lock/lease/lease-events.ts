import { lockChannels } from '../../events/lock-channels.js';
import type { Instant } from '../../timing/instant.js';
import type { Grant } from './grant.js';

/** Publishes that the backend has confirmed the renewal that was sent at `sentAt`. */
export function publishRenewed({ holder, ticket, schedule }: Grant, sentAt: Instant): void {
  const call = holder?.call;
  if (!call) return;
  const { fencingToken } = holder;
  const took = performance.now() - sentAt.monotonic;
  const lag = schedule ? Math.max(0, sentAt.monotonic - schedule.dueAt) : 0;
  lockChannels.renewed.publish({ call, owner: ticket, fencingToken, took, lag });
}

/** Publishes that a renewal of the grant has failed. */
export function publishRenewFailed({ holder, ticket, schedule }: Grant, why: string): void {
  const call = holder?.call;
  if (!call) return;
  const { fencingToken } = holder;
  lockChannels.renewFailed.publish({ call, owner: ticket, fencingToken, failures: schedule?.failures ?? 1, why });
}
