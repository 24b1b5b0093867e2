import type { LockSource } from '../../events/lock-channels.js';
import { scheduleChannels } from '../../events/schedule-channels.js';
import type { Schedule } from './schedule-options.js';
import type { ScheduledJobEvent } from './scheduled-run.js';

/** Publishes what happened to a job on the channel of that kind. */
export function publishJobEvent(
  { kind, ...details }: ScheduledJobEvent,
  { template }: Pick<Schedule, 'template'>,
  { backend, label }: LockSource,
): void {
  const channel = scheduleChannels[kind] as { publish(event: object): void };
  channel.publish({ ...details, template, backend, label });
}
