import type { QueueAnswer, QueueMessage } from '../../contracts/lock-backend.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import type { Grant } from '../lease/grant.js';
import { currentInstant, requestedTtl, type Instant } from '../lease/lease-clock.js';
import type { ReleaseOutcome } from '../lease/release-outcome.js';
import { claimOf, nextBeat, type Attempt } from './attempt.js';
import type { Caller } from './caller.js';
import type { Contention, Granted } from './contention.js';
import { lastOwnerOf, type LastOwner } from './refusals.js';

type Busy = Extract<QueueAnswer, { status: 'busy' }>;
type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/**
 * The attempts of a contender, one at a time: a ticket asks the backend, waits in its queue with heartbeats, and is
 * granted the name or given up.
 */
export class Attempts {
  /** The ticket that asks or waits now. */
  current: Attempt | undefined;
  /** The owner of the name in the last answer. */
  lastOwner: LastOwner | undefined;
  private pause: NodeJS.Timeout | undefined;

  constructor(private readonly contention: Contention) {}

  /** Whether a ticket asks or waits, or a new one will after a pause. */
  get active(): boolean {
    return this.current !== undefined || this.pause !== undefined;
  }

  /** Asks under a new ticket. */
  start(caller: Caller): void {
    const { queue, channel } = this.contention.place;
    const { options } = caller;
    const ttl = requestedTtl(options);
    const attempt = this.begin(channel.tried && !caller.triesOnce, ttl);
    queue.enqueue(
      this.contention.names,
      { ticket: attempt.ticket, ttl, claim: attempt.queues ? claimOf(options.ttl) : undefined },
      (answer) => this.answered(attempt, attempt.base, answer),
      (error) => this.failed(attempt, error),
      options.commandTimeout,
    );
  }

  /** Hands the name over to another process and waits again under a new ticket, in one request. */
  requeue(grant: Grant, claim: number): Promise<ReleaseOutcome> {
    const { contention } = this;
    const { queue, backend } = contention.place;
    const attempt = this.begin(true, claim);
    return new Promise((resolve) => {
      queue.requeue(
        contention.names,
        { ticket: grant.ticket, again: attempt.ticket, claim },
        (answer) => {
          if (answer.status !== 'not-owner') {
            this.answered(attempt, attempt.base, answer);
            return resolve('released');
          }
          // An earlier send of this request was carried out, and a message of the grant has arrived.
          if (contention.owns(attempt.ticket)) return resolve('released');
          if (answer.resent) this.abandon(attempt);
          if (this.current === attempt) {
            this.end(attempt);
            contention.goOn();
          }
          resolve(answer.resent ? 'released' : 'taken');
        },
        (error) => {
          backend.releaser.repeatUntilConfirmed(grant);
          this.failed(attempt, error);
          resolve('unconfirmed');
        },
      );
    });
  }

  onGrant({ ticket, tokens, claim, waiting }: GrantMessage): void {
    const { current } = this;
    if (current?.ticket !== ticket) return;
    if (tokens.first < current.unissued) return;
    this.granted(current, current.base, { tokens, remaining: claim, waiting });
  }

  /** The owner's lease ends in `remaining` ms, sooner than the backend had answered. */
  onLeaseEnds(ticket: string, remaining: number): void {
    const { current } = this;
    const caller = this.contention.callers.first;
    if (current?.ticket !== ticket || !current.heartbeat || !caller) return;
    this.beatAfter(current, nextBeat(caller.options.ttl, { first: true, far: false, unreached: false, remaining }));
  }

  /** Sends a heartbeat at once: messages may have been lost while the channel was closed. */
  onReconnect(): void {
    if (this.current?.heartbeat) this.beat(this.current);
  }

  /** Gives the attempt up: the last caller has left. */
  quit(): void {
    const { current } = this;
    if (current) {
      this.end(current);
      this.abandon(current);
    }
    clearTimeout(this.pause);
    this.pause = undefined;
  }

  /** A new attempt, whose first request is sent now. */
  private begin(queues: boolean, ttl: number): Attempt {
    const ticket = this.contention.nextTicket();
    const base = currentInstant();
    return (this.current = { ticket, queues, ttl, answered: false, base, unissued: 0, heartbeat: undefined });
  }

  private end(attempt: Attempt): void {
    clearTimeout(attempt.heartbeat);
    this.contention.forgetTicket(attempt.ticket);
    this.current = undefined;
  }

  private abandon({ ticket, ttl }: Attempt): void {
    const { names, place } = this.contention;
    place.backend.releaser.abandon({ names, ticket }, ttl);
  }

  /** `sentAt` is when the request was sent first, also where the client library has sent it again since. */
  private answered(attempt: Attempt, sentAt: Instant, answer: QueueAnswer): void {
    if (this.current !== attempt) {
      // A message of the grant came before this answer; or the attempt was given up, and its release may have
      // overtaken the request.
      if (this.contention.owns(attempt.ticket)) return;
      if (answer.status === 'granted' || attempt.queues) this.abandon(attempt);
      return;
    }
    this.contention.succeeded();
    if (answer.status === 'granted') this.granted(attempt, sentAt, answer, sentAt);
    else if (attempt.queues) this.wait(attempt, sentAt, answer);
    else this.refused(attempt, answer);
  }

  private granted(attempt: Attempt, base: Instant, answer: Granted, startedAt?: Instant): void {
    clearTimeout(attempt.heartbeat);
    this.current = undefined;
    this.contention.granted(attempt.ticket, base, answer, startedAt);
  }

  private wait(attempt: Attempt, sentAt: Instant, answer: Busy): void {
    const { contention } = this;
    this.lastOwner = lastOwnerOf(answer);
    attempt.answered = true;
    attempt.base = sentAt;
    attempt.unissued = answer.unissued;
    contention.refuseIfOverdue();
    const caller = contention.callers.first;
    if (!caller) return contention.quit();
    this.beatAfter(attempt, nextBeat(caller.options.ttl, answer));
    const { channel } = contention.place;
    if (!channel.isOpen) void channel.open();
  }

  /** The name is taken, and the ticket did not queue: callers that want to wait do so under the next one. */
  private refused(attempt: Attempt, answer: Busy): void {
    const { contention } = this;
    this.lastOwner = lastOwnerOf(answer);
    this.end(attempt);
    contention.refuseOverdue();
    if (!contention.callers.first) contention.forgetIfIdle();
    else void contention.place.channel.open().then(() => contention.goOn());
  }

  private beatAfter(attempt: Attempt, delay: number): void {
    clearTimeout(attempt.heartbeat);
    attempt.heartbeat = setTimeout(() => this.beat(attempt), delay).unref();
  }

  private beat(attempt: Attempt): void {
    const { contention } = this;
    clearTimeout(attempt.heartbeat);
    attempt.heartbeat = undefined;
    const sentAt = currentInstant();
    contention.place.queue.beat(
      contention.names,
      attempt.ticket,
      (answer) => {
        if (answer.status !== 'gone') this.answered(attempt, sentAt, answer);
        else if (this.current === attempt) {
          this.end(attempt);
          contention.goOn();
        }
      },
      (error) => {
        if (this.current !== attempt) return;
        contention.error = error;
        this.beatAfter(attempt, contention.backOff());
      },
      contention.callers.first?.options.commandTimeout,
    );
  }

  /** Gives the ticket up, as the backend may have carried the request out, and asks under a new one after a pause. */
  private failed(attempt: Attempt, error: LockBackendError): void {
    const { contention } = this;
    // The backend has carried it out, and a message of the grant has arrived.
    if (contention.owns(attempt.ticket)) return;
    this.abandon(attempt);
    if (this.current !== attempt) return;
    this.end(attempt);
    contention.error = error;
    contention.refuseOverdue();
    if (!contention.callers.first) return contention.forgetIfIdle();
    this.pause = setTimeout(() => {
      this.pause = undefined;
      contention.goOn();
    }, contention.backOff()).unref();
  }
}
