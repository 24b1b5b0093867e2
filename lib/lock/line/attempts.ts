import type { QueueAnswer, QueueMessage } from '../../contracts/lock-queue.js';
import type { Busy } from '../../contracts/lock-requests.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import { currentInstant, elapsedSince, type Instant } from '../../timing/clock.js';
import { nextHeartbeat, type Timeout } from '../../timing/timeouts.js';
import { type Grant, requestedTtl } from '../grant/grant.js';
import type { ReleaseOutcome } from '../grant/lease.js';
import type { GrantedLease } from '../grant/store.js';
import type { Caller } from './caller.js';
import type { Contender, LastOwner } from './line.js';

/** The longest claim (ms): what a dead process at the head of the queue costs the others. */
export const LONGEST_CLAIM = 1_000;
const SHORTEST_PERIOD = 25;
const LONGEST_PERIOD = 1_000;
/** The shortest time (ms) after which a waiter asks once more because its wait will end. */
const SHORTEST_PACE = 5;
/** How often (ms) a waiter asks while no message reaches its process. */
const UNREACHED_PERIOD = 50;
/** A caller that waits for longer than this (ms) can let other processes ask first: they do so within 50 ms. */
const PATIENT = 200;

export type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/** One ticket that asks for the name, or waits for it. */
interface Attempt {
  readonly ticket: string;
  /** Whether the ticket may wait in the queue at the backend. */
  readonly queues: boolean;
  /** The longest lease (ms) that the backend may grant it. */
  readonly ttl: number;
  /** The lease (ms) that was asked for in case that it has to wait. */
  readonly claim: number;
  /** Whether the backend has answered that the ticket waits. */
  answered: boolean;
  /** When the last request was sent to which the backend answered that the ticket waits: every grant is later. */
  base: Instant;
  /** A message with a fencing token below this reports an earlier grant. */
  unissued: number;
  heartbeat: Timeout | undefined;
  /** A release of this process that was under way when the ticket asked: it may find the name taken by that one. */
  readonly released: Promise<unknown> | undefined;
  /** Readers of this process keep what it was granted, and release it. */
  leftToReaders: boolean;
}

/**
 * The attempts of a contender, one at a time: a ticket asks the backend, waits in its queue with heartbeats, and is
 * granted the name or given up.
 */
export class Attempts {
  /** The ticket that asks or waits now. */
  current: Attempt | undefined;
  /** The owner of the name in the last answer. */
  lastOwner: LastOwner | undefined;
  /** The ticket that a message has granted the name last: the answer to its request may still come. */
  private granted: Attempt | undefined;
  private pause: NodeJS.Timeout | undefined;
  /** The release of this process after which a new ticket asks. */
  private awaited: Promise<unknown> | undefined;

  constructor(private readonly contender: Contender) {}

  /** Whether a ticket asks or waits, or a new one will after a pause or a release. */
  get active(): boolean {
    return this.current !== undefined || this.pause !== undefined || this.awaited !== undefined;
  }

  /** Whether a new ticket asks when a release of this process is answered. */
  get awaitsRelease(): boolean {
    return this.awaited !== undefined;
  }

  /** Asks under a new ticket. */
  start(caller: Caller): void {
    const { backend, contenders, name, names } = this.contender;
    const { calls, releaser } = backend;
    const { options } = caller;
    const released = releaser.inFlight > 0 ? releaser.releasing(names) : undefined;
    if (released && !calls.backend.traits.writesAtOnce) return this.startAfter(released);
    const queues = contenders.channel.tried && !caller.triesOnce;
    const claim = queues ? claimOf(this.contender, options.ttl) : undefined;
    const attempt = this.begin(queues, requestedTtl(options), claim, released);
    const { ticket, ttl } = attempt;
    const patient = caller.remaining() > PATIENT;
    const { first } = caller;
    const queue = first ?? contenders.queue;
    const { commandTimeout = calls.commandTimeout } = options;
    calls.send(
      'acquire',
      names,
      () => queue.enqueue({ prefix: calls.prefix, name, ticket, mode: options.mode, ttl, claim, patient }),
      (answer) => {
        if (answer.status === 'answered') return this.needless(attempt, caller);
        if (first && caller.waits && caller.first) caller.asksForName();
        this.answered(attempt, attempt.base, answer);
      },
      (error) => {
        if (first?.failed && caller.waits && caller.first) caller.refuse(first.failed(error));
        this.failed(attempt, error);
      },
      // It may be its second request, after a release of this process.
      options.wait === 0 ? caller.limitOf(commandTimeout) : commandTimeout,
    );
  }

  /**
   * Asks under a new ticket once the release is answered, so that the request cannot overtake it. Where requests are
   * written in order, that is not waited for: the ticket asks again if it finds the name taken.
   */
  private startAfter(released: Promise<unknown>): void {
    this.awaited = released;
    void released.then(() => {
      if (this.awaited !== released) return;
      this.awaited = undefined;
      this.contender.goOn();
    });
  }

  /** Hands the name over to another process and waits again under a new ticket, in one request. */
  requeue(grant: Grant, claim: number): Promise<ReleaseOutcome> {
    const { contender } = this;
    const { backend, contenders, name, names } = contender;
    const { calls, releaser } = backend;
    const attempt = this.begin(true, claim);
    const request = { prefix: calls.prefix, name, ticket: grant.ticket, again: attempt.ticket, claim };
    return releaser.ending(grant, (ended) => {
      calls.send(
        'release',
        names,
        () => contenders.queue.requeue(request),
        (answer) => {
          if (answer.status !== 'not-owner') {
            this.answered(attempt, attempt.base, answer);
            return ended('released');
          }
          // The backend carried out an earlier send of this request, and the message of the grant has arrived.
          if (this.owns(attempt)) return ended('released');
          if (answer.resent) this.abandon(attempt);
          if (this.current === attempt) {
            this.end(attempt);
            contender.goOn();
          }
          ended(answer.resent ? 'released' : 'taken');
        },
        (error) => {
          releaser.repeatUntilConfirmed(grant);
          this.failed(attempt, error);
          ended('unconfirmed');
        },
      );
    });
  }

  /** The readers of this process keep the grant, and release it. */
  leaveToReaders({ ticket }: Grant): void {
    if (this.granted?.ticket === ticket) this.granted.leftToReaders = true;
  }

  onGrant({ ticket, tokens, claim, waiting }: GrantMessage): void {
    const { current } = this;
    if (current?.ticket !== ticket) return;
    if (tokens.first < current.unissued) return;
    // That claim may have ended, and a second send of the request under way been granted the name anew, with the tokens
    // of its answer.
    if (!current.answered && elapsedSince(current.base) >= Math.min(claim, current.claim)) return;
    this.begun(current, current.base, { tokens, remaining: claim, waiting }, current.claim);
  }

  /** The owner's lease ends in `remaining` ms, sooner than the last answer said. */
  onLeaseEnds(ticket: string, remaining: number): void {
    const { current } = this;
    const caller = this.contender.callers.first;
    if (current?.ticket !== ticket || !current.heartbeat || !caller) return;
    this.beatAfter(current, nextBeat(caller.options.ttl, { first: true, remaining }));
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
    this.pause = this.awaited = undefined;
  }

  /** Begins an attempt, whose first request is sent now. */
  private begin(queues: boolean, ttl: number, claim = ttl, released?: Promise<unknown>): Attempt {
    return (this.current = {
      ticket: this.contender.contenders.nextTicket(this.contender),
      queues,
      ttl,
      claim,
      answered: false,
      base: currentInstant(),
      unissued: 0,
      heartbeat: undefined,
      released,
      leftToReaders: false,
    });
  }

  private end(attempt: Attempt): void {
    attempt.heartbeat?.leave();
    this.contender.forgetTicket(attempt.ticket);
    this.current = undefined;
  }

  private abandon({ ticket, ttl }: Attempt): void {
    const { names, backend } = this.contender;
    backend.releaser.abandon({ names, ticket }, ttl);
  }

  /** `sentAt` is when the request was first sent, even if the client library has resent it since. */
  private answered(attempt: Attempt, sentAt: Instant, answer: QueueAnswer): void {
    if (this.current !== attempt) {
      // The message of the grant arrived before this answer; or the attempt was given up, and its release may have
      // overtaken the request.
      if (this.owns(attempt)) return;
      if (answer.status === 'granted' || attempt.queues) this.abandon(attempt);
      return;
    }
    if (answer.status === 'granted') return this.begun(attempt, sentAt, answer, attempt.ttl, sentAt);
    const { contender } = this;
    if (answer.status !== 'busy') throw contender.backend.calls.noAnswer(contender.names, answer);
    contender.succeeded();
    if (attempt.queues) this.wait(attempt, sentAt, answer);
    else this.refused(attempt, answer);
  }

  /** The caller of the first request needs no lock any more: nothing was taken, and others of this process ask. */
  private needless(attempt: Attempt, caller: Caller): void {
    const { contender } = this;
    if (this.current !== attempt) return;
    this.end(attempt);
    contender.succeeded();
    if (caller.waits) caller.refuse(caller.first);
    contender.goOn();
  }

  /** Abandons the ticket, because the backend may have carried the request out; asks under a new one after a pause. */
  private failed(attempt: Attempt, error: LockBackendError): void {
    const { contender } = this;
    // The backend carried it out, and the message of the grant has arrived.
    if (this.owns(attempt)) return;
    const { refusal } = contender.backend.calls;
    if (!refusal) this.abandon(attempt);
    if (this.current !== attempt) return;
    this.end(attempt);
    contender.error = error;
    if (refusal) contender.refuseAll(error);
    contender.refuseOverdue();
    if (!contender.callers.first) return contender.forgetIfIdle();
    this.pause = setTimeout(() => {
      this.pause = undefined;
      contender.goOn();
    }, contender.backOff()).unref();
  }

  /** Whether a message has granted it the name, which this process still owns or has left to its readers. */
  private owns(attempt: Attempt): boolean {
    return attempt.leftToReaders || this.contender.owns(attempt.ticket);
  }

  private begun(attempt: Attempt, base: Instant, answer: GrantedLease, asked: number, startedAt?: Instant): void {
    const { contender } = this;
    const { names, mode } = contender;
    const { ticket } = attempt;
    const grant = contender.backend.calls.granted({ names, ticket }, { base, asked, mode }, answer);
    attempt.heartbeat?.leave();
    this.current = undefined;
    this.granted = startedAt ? undefined : attempt;
    contender.succeeded();
    contender.turn.begin(grant, answer.waiting, startedAt);
  }

  private wait(attempt: Attempt, sentAt: Instant, answer: Busy): void {
    const { contender } = this;
    this.lastOwner = contender.busy(answer);
    attempt.answered = true;
    attempt.base = sentAt;
    contender.contenders.answeredWithin(elapsedSince(sentAt));
    attempt.unissued = answer.unissued ?? 0;
    if (contender.overdue) contender.refuseOverdue();
    const caller = contender.callers.first;
    if (!caller) return contender.quit();
    this.beatAfter(attempt, nextBeat(caller.options.ttl, answer, paceOf(contender, caller)));
    const { channel } = contender.contenders;
    if (!channel.isOpen) void channel.open();
  }

  /** The name is taken, and the ticket did not queue: callers that want to wait do so under the next one. */
  private refused(attempt: Attempt, answer: Busy): void {
    const { contender } = this;
    this.end(attempt);
    if (attempt.released) return this.startAfter(attempt.released);
    this.lastOwner = contender.busy(answer);
    contender.refuseOverdue();
    if (!contender.callers.first) contender.forgetIfIdle();
    else void contender.contenders.channel.open().then(() => contender.goOn());
  }

  private beatAfter(attempt: Attempt, delay: number): void {
    attempt.heartbeat?.leave();
    const { ticks } = this.contender.backend.calls;
    attempt.heartbeat = ticks.start(performance.now() + delay, () => this.beat(attempt));
  }

  private beat(attempt: Attempt): void {
    const { contender } = this;
    const { backend, contenders, name, names, mode, callers } = contender;
    const { calls } = backend;
    const { ticket, ttl } = attempt;
    attempt.heartbeat?.leave();
    attempt.heartbeat = undefined;
    const sentAt = currentInstant();
    calls.send(
      'acquire',
      names,
      () => contenders.queue.beat({ prefix: calls.prefix, name, ticket, mode, ttl }),
      (answer) => {
        if (answer.status !== 'gone') this.answered(attempt, sentAt, answer);
        else if (this.current === attempt) {
          this.end(attempt);
          contender.goOn();
        }
      },
      (error) => {
        if (this.current !== attempt) return;
        if (calls.refusal) return this.failed(attempt, error);
        contender.error = error;
        this.beatAfter(attempt, contender.backOff());
      },
      callers.first?.options.commandTimeout,
    );
  }
}

/** The claim (ms) that a waiter is granted: the whole lease where that is the session of its process. */
export function claimOf({ backend }: Contender, ttl: number): number {
  return backend.calls.backend.traits.lease === 'session' ? ttl : Math.min(LONGEST_CLAIM, ttl);
}

/**
 * Milliseconds until the next heartbeat: half a claim, so that a lost message costs no more; twice that for a waiter
 * far from the head. A little less brings it nearer to the others of the process. The first waiter asks as soon as the
 * owner's lease ends. Where the queue sends no messages, every waiter asks at its `pace`.
 */
function nextBeat(
  ttl: number,
  { first, far, unreached, remaining }: Pick<Busy, 'first' | 'far' | 'unreached' | 'remaining'>,
  pace?: number,
): number {
  if (pace !== undefined) return Math.min(pace, remaining + 1);
  const near = Math.max(Math.min(LONGEST_CLAIM, ttl) / 2, SHORTEST_PERIOD);
  if (unreached) return Math.min(near, UNREACHED_PERIOD);
  const period = far ? Math.min(2 * near, LONGEST_PERIOD) : near;
  if (first && remaining < period) return remaining + 1;
  const now = performance.now();
  const delay = nextHeartbeat(now + period, period) - now;
  // Not just before the owner's lease ends: a dead owner would cost a period more.
  return remaining > delay && remaining < 1.1 * period ? remaining + 1 : delay;
}

/** When a waiter asks again where the queue sends no messages: before its wait ends, unless that is in 5 ms. */
function paceOf({ backend, contenders, name }: Contender, caller: Caller): number | undefined {
  const pace = contenders.queue.pace?.({ prefix: backend.calls.prefix, name });
  return pace === undefined ? undefined : Math.min(pace, Math.max(caller.remaining() / 2, SHORTEST_PACE));
}
