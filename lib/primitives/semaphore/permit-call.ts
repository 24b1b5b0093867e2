import type {
  AcquirePermitsAnswer,
  PermitRequest,
  PermitsGranted,
  SemaphoreStore,
  WaiterState,
} from '../../contracts/primitives/semaphore-store.js';
import type { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import type { LockSource } from '../../events/lock-channels.js';
import { semaphoreChannels, type SemaphoreCall, type SemaphoreFailed } from '../../events/semaphore-channels.js';
import { SemaphoreTimeoutError } from '../../errors/semaphore-errors.js';
import { listenToAbort } from '../../timing/abort-listeners.js';
import { backoff } from '../../timing/backoff.js';
import { currentInstant, type Instant } from '../../timing/instant.js';
import type { Place } from '../../timing/linked-list.js';
import type { Timeout, Timeouts } from '../../timing/timeouts.js';
import type { PrimitiveCalls } from '../primitive-calls.js';
import { grantOf, trustedOf, type HeldPermit, type PermitGrant } from './held-permit.js';
import { callOf, permitsAreObserved, publishAcquired, publishRefusal } from './permit-events.js';
import type { SemaphoreSettings } from './semaphore-options.js';

/** With less than this share of a grant left, the permit is renewed before the caller enters. */
const ENOUGH = 0.5;

/** What a call uses of its process. */
export interface PermitDesk {
  readonly store: SemaphoreStore;
  readonly calls: PrimitiveCalls;
  readonly source: LockSource;
  readonly timeouts: Timeouts;
  readonly queues: {
    /** From now on, messages for the ticket of the call reach it. */
    enter(call: PermitCall): void;
    /** The ticket stands in the queue at the store; the next lease there ends in `nextEnd` ms. */
    wait(call: PermitCall, nextEnd: number): void;
    leave(call: PermitCall): void;
  };
  newTicket(): string;
  hold(call: PermitCall, grant: PermitGrant): HeldPermit;
  /** Gives permits back, or takes the ticket out of the queue. */
  giveBack(request: PermitRequest, lease: number): void;
}

/**
 * One call that wants permits. It asks the store, and waits in its queue if it has to; the grant comes as the answer to
 * a request or as a message.
 *
 * A message may have been under way for any time. Its lease counts from when the last request was sent that was
 * answered with "waiting": the grant cannot be older. A message whose token that answer knew already is of an earlier
 * place in the queue, which the ticket got by a request without an answer, and of a claim that has ended since.
 */
export class PermitCall {
  private ticket: string;
  /** When the last request was sent that was answered with "waiting"; before that, when the ticket was first sent. */
  private base: Instant;
  /** The last fencing token of the semaphore by that answer. */
  private lastToken = 0;
  readonly startedAt = performance.now();
  private asking = false;
  private over = false;
  /** The wait is over, and the call stays only for the answer that is under way. */
  private overdue = false;
  /** Of the last request. */
  private failure: PrimitiveBackendError | undefined;
  private failures = 0;
  private metContention = false;
  /** Of its events, once it has published one. */
  recorded: SemaphoreCall | undefined;
  /** Its place among the waiters of its process. */
  place: Place<PermitCall> | undefined;
  private permit: HeldPermit | undefined;
  private timeout: Timeout | undefined;
  private abortion: { leave(): void } | undefined;

  constructor(
    private readonly desk: PermitDesk,
    readonly name: string,
    readonly settings: SemaphoreSettings,
    private readonly resolve: (permit: HeldPermit) => void,
    private readonly reject: (error: unknown) => void,
  ) {
    this.ticket = desk.newTicket();
    this.base = currentInstant();
  }

  begin(): void {
    const { wait, signal } = this.settings;
    if (signal?.aborted) return this.reject(signal.reason);
    if (signal) this.abortion = listenToAbort(signal, () => this.giveUp(signal.reason, 'aborted'));
    if (wait > 0 && wait !== Infinity) this.timeout = this.desk.timeouts.start(wait, this);
    if (semaphoreChannels.attempt.hasSubscribers) semaphoreChannels.attempt.publish({ call: this.call, wait });
    this.desk.queues.enter(this);
    this.ask();
  }

  get call(): SemaphoreCall {
    return (this.recorded ??= callOf(this.desk.source, this.name, this.settings));
  }

  get request(): PermitRequest {
    return { name: this.name, ticket: this.ticket, count: this.settings.count };
  }

  /** The wait is over. */
  expire(): void {
    if (this.asking) this.overdue = true;
    else this.refuse();
  }

  /** Ends the wait for a reason, and gives back what the store may keep of the ticket. */
  giveUp(reason: unknown, kind: SemaphoreFailed['reason'], { kept = true } = {}): void {
    if (this.over) return;
    this.end();
    publishRefusal(this, reason, kind);
    if (kept) this.desk.giveBack(this.request, this.settings.ttl);
    this.reject(reason);
  }

  /** A message said that the ticket was granted its permits. */
  grantedByMessage(grant: Omit<PermitsGranted, 'status'>): void {
    if (grant.fencingToken > this.lastToken) this.granted(grantOf(this.base, grant));
  }

  /** The answer to a heartbeat that was sent at `sentAt`. */
  told(sentAt: Instant, state: WaiterState, lastToken: number): void {
    if (this.over || this.asking) return;
    this.failure = undefined;
    if (state.status === 'granted') this.granted(grantOf(sentAt, state));
    else if (state.status === 'waiting') [this.base, this.lastToken] = [sentAt, lastToken];
    else this.askAnew();
  }

  /** A heartbeat failed. */
  beatFailed(error: PrimitiveBackendError): void {
    this.failure = error;
  }

  private ask(): void {
    const { desk, settings } = this;
    const { permits, ttl, wait } = settings;
    const [request, sentAt] = [this.request, currentInstant()];
    const { name, ticket, count } = request;
    this.asking = true;
    desk.calls.ask(
      'acquisition of a permit of semaphore',
      this.name,
      () => desk.store.acquire({ name, ticket, count, permits, ttl, queues: wait > 0 }),
      (answer) => this.answered(sentAt, request, answer),
      (error) => this.failed(error),
      { late: (answer) => this.answeredLate(request, answer) },
    );
  }

  private answered(sentAt: Instant, request: PermitRequest, answer: AcquirePermitsAnswer): void {
    this.asking = false;
    if (this.over) return this.answeredLate(request, answer);
    [this.failure, this.failures] = [undefined, 0];
    if (answer.status === 'granted') return this.granted(grantOf(sentAt, answer));
    this.meetContention();
    // The store keeps nothing of a ticket that does not queue.
    if (this.settings.wait === 0) return this.giveUp(this.timedOut(), 'backend', { kept: false });
    if (this.overdue) return this.refuse();
    [this.base, this.lastToken] = [sentAt, answer.lastToken];
    this.desk.queues.wait(this, answer.nextEnd);
  }

  /**
   * The call is over, or has asked with another ticket. A grant that it did not get goes back, and so does a place in
   * the queue: a request that was sent twice may have entered the queue after the release.
   */
  private answeredLate(request: PermitRequest, answer: AcquirePermitsAnswer): void {
    const { desk, settings, permit } = this;
    if (request.ticket === this.ticket && (!this.over || permit?.isOver === false)) return;
    if (answer.status === 'granted') desk.giveBack(request, answer.remaining);
    else if (settings.wait > 0) desk.giveBack(request, settings.ttl);
  }

  private granted(grant: PermitGrant): void {
    if (this.over) return;
    if (trustedOf(grant) < ENOUGH * grant.remaining) return this.confirm(grant.fencingToken);
    this.end();
    const permit = (this.permit = this.desk.hold(this, grant));
    if (permitsAreObserved()) publishAcquired(permit, this.startedAt);
    this.resolve(permit);
  }

  /** Renews a grant of which little is left. */
  private confirm(fencingToken: number): void {
    if (this.asking) return;
    this.asking = true;
    const sentAt = currentInstant();
    const request = { ...this.request, ttl: this.settings.ttl };
    this.desk.calls
      .run('renewal of a permit of semaphore', this.name, () => this.desk.store.renew(request))
      .then(
        (remaining) => {
          this.asking = false;
          if (this.over) return;
          if (remaining !== undefined) this.granted({ sentAt, remaining, fencingToken });
          else if (this.overdue) this.refuse();
          else this.askAnew();
        },
        (error: PrimitiveBackendError) => this.failed(error),
      );
  }

  private failed(error: PrimitiveBackendError): void {
    this.asking = false;
    if (this.over) return;
    this.failure = error;
    if (this.settings.wait === 0 || this.overdue) return this.refuse();
    const again = () => {
      if (!this.over && !this.asking) this.ask();
    };
    setTimeout(again, backoff(this.failures)).unref();
    this.failures += 1;
  }

  /** Asks with another ticket, because the store has forgotten this one. */
  private askAnew(): void {
    this.desk.queues.leave(this);
    this.ticket = this.desk.newTicket();
    [this.base, this.lastToken] = [currentInstant(), 0];
    this.desk.queues.enter(this);
    this.ask();
  }

  private refuse(): void {
    this.giveUp(this.failure ?? this.timedOut(), 'backend');
  }

  private timedOut(): SemaphoreTimeoutError {
    return new SemaphoreTimeoutError(this.name, { ...this.settings, waited: performance.now() - this.startedAt });
  }

  private meetContention(): void {
    if (this.metContention || !semaphoreChannels.contended.hasSubscribers) return;
    this.metContention = true;
    semaphoreChannels.contended.publish({ call: this.call });
  }

  private end(): void {
    this.over = true;
    this.timeout?.leave();
    this.abortion?.leave();
    this.desk.queues.leave(this);
  }
}
