import { SemaphoreTimeoutError } from '../../errors/semaphore-errors.js';
import type { LockSource } from '../../events/lock-channels.js';
import { semaphoreChannels, type SemaphoreCall, type SemaphoreFailed } from '../../events/semaphore-channels.js';
import { mayEnd, mustNotEnd } from '../../timing/awake-process.js';
import { listenToAbort } from '../../timing/abort-listeners.js';
import type { Place } from '../../timing/linked-list.js';
import type { Expiring, Timeout, Timeouts } from '../../timing/timeouts.js';
import type { HeldPermit } from './held-permit.js';
import { callOf, permitsAreObserved, publishAcquired, publishRefusal } from './permit-events.js';
import type { SemaphoreSettings } from './semaphore-options.js';

/** Where a call waits. */
export interface CallHost {
  join(call: PermitCall): void;
  /** Its wait is over. */
  expired(call: PermitCall): void;
  /** It waits no more. */
  left(call: PermitCall): void;
}

/** One call that wants permits: how long it waits, and what it gets. */
export class PermitCall implements Expiring {
  readonly startedAt = performance.now();
  /** Of its events, once it has published one. */
  recorded: SemaphoreCall | undefined;
  /** Its place among those that wait. */
  place: Place<PermitCall> | undefined;
  /** What asks the store for it alone, where it tries once. */
  bid: { giveUp(): void } | undefined;
  /** The wait is over, and the call stays only for an answer that is under way. */
  overdue = false;
  private over = false;
  private metContention = false;
  private host: CallHost | undefined;
  private timeout: Timeout | undefined;
  private abortion: { leave(): void } | undefined;

  constructor(
    private readonly source: LockSource,
    readonly name: string,
    readonly settings: SemaphoreSettings,
    private readonly resolve: (permit: HeldPermit) => void,
    private readonly reject: (error: unknown) => void,
  ) {}

  begin(hostOf: () => CallHost, timeouts: Timeouts): void {
    const { wait, signal } = this.settings;
    mustNotEnd();
    if (signal) this.abortion = listenToAbort(signal, () => this.refuse(signal.reason, 'aborted'));
    if (wait > 0 && wait !== Infinity) this.timeout = timeouts.start(wait, this);
    if (semaphoreChannels.attempt.hasSubscribers) semaphoreChannels.attempt.publish({ call: this.call, wait });
    // Who listens to the event may have ended the call.
    if (!this.over) (this.host = hostOf()).join(this);
  }

  get call(): SemaphoreCall {
    return (this.recorded ??= callOf(this.source, this.name, this.settings));
  }

  /** Whether it asks the store once, and does not wait. */
  get triesOnce(): boolean {
    return this.settings.wait === 0;
  }

  expire(): void {
    this.host?.expired(this);
  }

  admit(permit: HeldPermit): void {
    this.end();
    if (permitsAreObserved()) publishAcquired(permit, this.startedAt);
    this.resolve(permit);
  }

  refuse(error: unknown, reason: SemaphoreFailed['reason']): void {
    if (this.over) return;
    this.end();
    publishRefusal(this, error, reason);
    this.reject(error);
  }

  timedOut(): SemaphoreTimeoutError {
    return new SemaphoreTimeoutError(this.name, { ...this.settings, waited: performance.now() - this.startedAt });
  }

  /** Too few permits were free for it, or others were ahead. */
  meetContention(): void {
    if (this.metContention || !semaphoreChannels.contended.hasSubscribers) return;
    this.metContention = true;
    semaphoreChannels.contended.publish({ call: this.call });
  }

  private end(): void {
    this.over = true;
    mayEnd();
    this.timeout?.leave();
    this.abortion?.leave();
    this.host?.left(this);
  }
}
