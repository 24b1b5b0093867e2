import type { QueueAnswer, QueueMessage } from '../../contracts/lock-backend.js';
import type { Grant } from '../lease/grant.js';
import { currentInstant, type Instant } from '../lease/lease-clock.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import { leaseOf } from '../options/lock-options.js';
import type { ReleaseOutcome } from '../lease/releaser.js';
import { newAttempt, type Attempt } from './attempt.js';
import type { Caller } from './caller.js';
import { claimOf, nextBeat } from './claim.js';
import type { Contender } from './contender.js';
import type { LockQueues } from './lock-queues.js';
import { lastOwnerOf, type LastOwner } from './refusals.js';

type Busy = Extract<QueueAnswer, { status: 'busy' }>;
type Granted = Extract<QueueAnswer, { status: 'granted' }>;
type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/**
 * How a contender asks the backend for its name: with one ticket at a time, which waits in the queue there and says
 * from time to time that it lives, until it is granted or given up.
 */
export class Asking {
  /** The ticket that asks or waits. */
  attempt: Attempt | undefined;
  /** Who had the name when the backend was last asked. */
  busy: LastOwner | undefined;
  private pause: NodeJS.Timeout | undefined;

  constructor(
    private readonly contender: Contender,
    private readonly queues: LockQueues,
    private readonly names: readonly [string],
  ) {}

  /** Whether it asks, waits, or pauses before it asks again. */
  get active(): boolean {
    return this.attempt !== undefined || this.pause !== undefined;
  }

  /** Asks under a new ticket. */
  enqueue(caller: Caller): void {
    const { ttl, commandTimeout } = caller.options;
    const lease = leaseOf(caller.options);
    const attempt = this.begin(!caller.triesOnce && this.queues.listening, lease);
    this.queues.send(
      'acquire',
      this.names,
      this.queues.backend.enqueue({
        prefix: this.queues.prefix,
        name: this.names[0],
        ticket: attempt.ticket,
        ttl: lease,
        claim: attempt.queues ? claimOf(ttl) : undefined,
      }),
      (answer) => this.answered(attempt, attempt.base, answer),
      (error) => this.failed(attempt, error),
      commandTimeout,
    );
  }

  /** Passes the name to another process and queues again, in one round trip. */
  requeue(grant: Grant, claim: number): Promise<ReleaseOutcome> {
    const { contender } = this;
    const attempt = this.begin(true, claim);
    const tickets = { ticket: grant.ticket, again: attempt.ticket };
    return new Promise((resolve) => {
      this.queues.send(
        'release',
        this.names,
        this.queues.backend.requeue({ prefix: this.queues.prefix, name: this.names[0], ...tickets, claim }),
        (answer) => {
          if (answer.status !== 'not-owner') {
            this.answered(attempt, attempt.base, answer);
            return resolve('released');
          }
          // Carried out the first time it was sent, and a message told of the grant.
          if (contender.owns(attempt.ticket)) return resolve('released');
          if (answer.resent) this.abandon(attempt);
          if (this.attempt === attempt) {
            this.end(attempt);
            contender.goOn();
          }
          resolve(answer.resent ? 'released' : 'taken');
        },
        (error) => {
          this.queues.releaser.repeatUntilConfirmed(grant);
          this.failed(attempt, error);
          resolve('unconfirmed');
        },
      );
    });
  }

  onGrant({ ticket, tokens, claim, waiting }: GrantMessage): void {
    const { attempt } = this;
    if (attempt?.ticket !== ticket) return;
    if (tokens.first < attempt.unissued) return;
    this.granted(attempt, attempt.base, { tokens, remaining: claim, waiting });
  }

  /** The lease of the owner ends sooner than this waiter was told. */
  leaseEnds(ticket: string, remaining: number): void {
    const { attempt } = this;
    const caller = this.contender.callers.first;
    if (attempt?.ticket !== ticket || !attempt.heartbeat || !caller) return;
    this.beatAfter(attempt, nextBeat(caller.options.ttl, { first: true, far: false, unreached: false, remaining }));
  }

  /** Messages may have been lost: asks now. */
  onReconnect(): void {
    if (this.attempt?.heartbeat) this.beat(this.attempt);
  }

  /** Nobody asks any more. */
  quit(): void {
    const { attempt } = this;
    if (attempt) {
      this.end(attempt);
      this.abandon(attempt);
    }
    clearTimeout(this.pause);
    this.pause = undefined;
  }

  private begin(queues: boolean, lease: number): Attempt {
    const ticket = this.queues.ticketFor(this.contender);
    this.attempt = newAttempt(ticket, queues, lease);
    return this.attempt;
  }

  private end(attempt: Attempt): void {
    clearTimeout(attempt.heartbeat);
    this.queues.forget(attempt.ticket);
    this.attempt = undefined;
  }

  private abandon({ ticket, lease }: Attempt): void {
    this.queues.abandon(this.names[0], ticket, lease);
  }

  /** `sentAt` is when the request was sent; a copy that the client library sent later counts from then too. */
  private answered(attempt: Attempt, sentAt: Instant, answer: QueueAnswer): void {
    if (this.attempt !== attempt) {
      // Granted by a message before this answer; or given up meanwhile, and the release may have overtaken the request.
      if (this.contender.owns(attempt.ticket)) return;
      if (answer.status === 'granted' || attempt.queues) this.abandon(attempt);
      return;
    }
    this.contender.succeeded();
    if (answer.status === 'granted') this.granted(attempt, sentAt, answer, sentAt);
    else if (attempt.queues) this.wait(attempt, sentAt, answer);
    else this.refused(attempt, answer);
  }

  private granted(
    attempt: Attempt,
    base: Instant,
    answer: Pick<Granted, 'tokens' | 'remaining' | 'waiting'>,
    startedAt?: Instant,
  ): void {
    clearTimeout(attempt.heartbeat);
    this.attempt = undefined;
    this.contender.granted(attempt.ticket, base, answer, startedAt);
  }

  private wait(attempt: Attempt, sentAt: Instant, answer: Busy): void {
    const { contender } = this;
    this.busy = lastOwnerOf(answer);
    attempt.answered = true;
    attempt.base = sentAt;
    attempt.unissued = answer.unissued;
    contender.refuseIfOverdue();
    const caller = contender.callers.first;
    if (!caller) return contender.quit();
    this.beatAfter(attempt, nextBeat(caller.options.ttl, answer));
  }

  /** One try found it busy. Callers that want to wait do so in the queue. */
  private refused(attempt: Attempt, answer: Busy): void {
    const { contender } = this;
    this.busy = lastOwnerOf(answer);
    this.end(attempt);
    contender.refuseOverdue();
    if (!contender.callers.first) this.queues.forgetIdle(contender);
    else void this.queues.listen().then(() => contender.goOn());
  }

  private beatAfter(attempt: Attempt, delay: number): void {
    clearTimeout(attempt.heartbeat);
    attempt.heartbeat = setTimeout(() => this.beat(attempt), delay).unref();
  }

  private beat(attempt: Attempt): void {
    clearTimeout(attempt.heartbeat);
    attempt.heartbeat = undefined;
    const sentAt = currentInstant();
    this.queues.send(
      'acquire',
      this.names,
      this.queues.backend.beat({ prefix: this.queues.prefix, name: this.names[0], ticket: attempt.ticket }),
      (answer) => {
        if (answer.status !== 'gone') this.answered(attempt, sentAt, answer);
        else if (this.attempt === attempt) {
          this.end(attempt);
          this.contender.goOn();
        }
      },
      (error) => {
        if (this.attempt !== attempt) return;
        this.contender.error = error;
        this.beatAfter(attempt, this.contender.backOff());
      },
      this.contender.callers.first?.options.commandTimeout,
    );
  }

  /** Whether an unanswered request was carried out is unknown: its ticket is given up, and a new one asks later. */
  private failed(attempt: Attempt, error: LockBackendError): void {
    const { contender } = this;
    // Carried out after all, and a message told of the grant.
    if (contender.owns(attempt.ticket)) return;
    this.abandon(attempt);
    if (this.attempt !== attempt) return;
    this.end(attempt);
    contender.error = error;
    contender.refuseOverdue();
    if (!contender.callers.first) return this.queues.forgetIdle(contender);
    this.pause = setTimeout(() => {
      this.pause = undefined;
      contender.goOn();
    }, contender.backOff()).unref();
  }
}
