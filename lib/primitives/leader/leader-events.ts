import { LockLostError } from '../../errors/lock-errors.js';
import { leaderChannels, type LeaderEvent } from '../../events/leader-channels.js';
import type { LockSource } from '../../events/lock-channels.js';
import type { LeadershipEnd } from './leadership.js';

/** What all events of a candidacy have in common. */
export function leaderEvent(name: string, { backend, label }: LockSource): LeaderEvent {
  return { name, backend, label };
}

/** Publishes why a term has ended, to those who listen; `why` is the loss of its lock, if that was why. */
export function publishTermEnd(
  name: string,
  source: LockSource,
  term: number,
  reason: LeadershipEnd,
  why: unknown,
): void {
  const { lost, resigned } = leaderChannels;
  if (reason !== 'lost') {
    if (resigned.hasSubscribers) resigned.publish({ ...leaderEvent(name, source), term, reason });
  } else if (lost.hasSubscribers) {
    const { reason: cause } = why instanceof LockLostError ? why : { reason: 'expired' as const };
    lost.publish({ ...leaderEvent(name, source), term, reason: cause });
  }
}
