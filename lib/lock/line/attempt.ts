import type { QueueAnswer, QueueMessage } from '../../contracts/lock-queue.js';
import type { Busy } from '../../contracts/lock-requests.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import { nextHeartbeat, type Timeout, currentInstant, elapsedSince, type Instant } from '../../timing/clock.js';
import type { GrantedLease } from '../grant/store.js';
import type { Caller } from './caller.js';
import type { Contender } from './line.js';

/** The longest claim (ms): what a dead process at the head of the queue costs the others. */
export const LONGEST_CLAIM = 1_000;
const SHORTEST_PERIOD = 25;
const LONGEST_PERIOD = 1_000;
/** The shortest time (ms) after which a waiter asks once more because its wait will end. */
const SHORTEST_PACE = 5;
/** How often (ms) a waiter asks while no message reaches its process. */
const UNREACHED_PERIOD = 50;

export type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/**
 * One ticket of a contender. It **asks** for the name; if that is taken, it **waits** in the queue of the backend, with
 * heartbeats. It ends when it is granted the name, or given up: then what the backend may keep of it is released.
 */
export class Attempt {
  readonly ticket: string;
  /** Whether the backend has answered that the ticket waits. */
  waits = false;
  /** Readers of this process keep what it was granted, and release it. */
  leftToReaders = false;
  /** When the last request was sent to which the backend answered that the ticket waits: every grant is later. */
  readonly askedAt = currentInstant();
  private base = this.askedAt;
  /** A message with a fencing token below this reports an earlier grant. */
  private unissued = 0;
  private heartbeat: Timeout | undefined = undefined;

  constructor(
    private readonly contender: Contender,
    /** Whether the ticket may wait in the queue at the backend. */
    readonly queues: boolean,
    /** The longest lease (ms) that the backend may grant it. */
    private readonly ttl: number,
    /** The lease (ms) that was asked for in case that it has to wait. */
    private readonly claim = ttl,
    /** A release of this process that was under way when the ticket asked: it may find the name taken by that one. */
    private readonly released?: Promise<unknown>,
  ) {
    this.ticket = contender.contenders.nextTicket(contender);
  }

  /** `sentAt` is when the request was first sent, even if the client library has resent it since. */
  answered(sentAt: Instant, answer: QueueAnswer): void {
    const { contender } = this;
    if (contender.attempt !== this) {
      // The message of the grant arrived before this answer; or the attempt was given up, and its release may have
      // overtaken the request.
      if (this.owns) return;
      if (answer.status === 'granted' || this.queues) this.abandon();
      return;
    }
    if (answer.status === 'granted') return this.begun(sentAt, answer, this.ttl, sentAt);
    if (answer.status !== 'busy') throw contender.backend.calls.noAnswer(contender.names, answer);
    contender.succeeded();
    if (this.queues) this.wait(sentAt, answer);
    else this.refused(answer);
  }

  /** The caller of the first request needs no lock any more: nothing was taken, and others of this process ask. */
  needless(caller: Caller): void {
    const { contender } = this;
    if (contender.attempt !== this) return;
    this.end();
    contender.succeeded();
    if (caller.waits) caller.refuse(caller.first);
    contender.goOn();
  }

  /** Abandons the ticket, because the backend may have carried the request out; asks under a new one after a pause. */
  failed(error: LockBackendError): void {
    const { contender } = this;
    // The backend carried it out, and the message of the grant has arrived.
    if (this.owns) return;
    const { refusal } = contender.backend.calls;
    if (!refusal) this.abandon();
    if (contender.attempt !== this) return;
    this.end();
    contender.error = error;
    if (refusal) contender.refuseAll(error);
    contender.refuseOverdue();
    if (contender.first) contender.pause();
    else contender.forgetIfIdle();
  }

  /** A message says that it was granted the name. */
  onGrant({ tokens, claim, waiting }: GrantMessage): void {
    if (tokens.first < this.unissued) return;
    // That claim may have ended, and a second send of the request under way been granted the name anew, with the tokens
    // of its answer.
    if (!this.waits && elapsedSince(this.base) >= Math.min(claim, this.claim)) return;
    this.begun(this.base, { tokens, remaining: claim, waiting }, this.claim);
  }

  /** The owner's lease ends in `remaining` ms, sooner than the last answer said. */
  onLeaseEnds(remaining: number): void {
    const caller = this.contender.first;
    if (this.heartbeat && caller) this.beatAfter(nextBeat(caller.options.ttl, { first: true, remaining }));
  }

  /** Sends a heartbeat at once: messages may have been lost while the channel was closed. */
  onReconnect(): void {
    if (this.heartbeat) this.beat();
  }

  /** Releases what the backend may keep of the ticket. */
  abandon(): void {
    const { names, backend } = this.contender;
    const { ticket, ttl } = this;
    backend.releaser.abandon({ names, ticket }, ttl);
  }

  /** The ticket asks and waits no more. */
  end(): void {
    this.heartbeat?.leave();
    this.contender.forgetTicket(this.ticket);
    this.contender.attempt = undefined;
  }

  /** Whether a message has granted it the name, which this process still owns or has left to its readers. */
  get owns(): boolean {
    return this.leftToReaders || this.contender.owns(this.ticket);
  }

  private begun(base: Instant, answer: GrantedLease, asked: number, startedAt?: Instant): void {
    const { contender, ticket } = this;
    const { contenders, names, mode } = contender;
    const grant = contenders.backend.calls.granted({ names, ticket }, { base, asked, mode }, answer);
    this.heartbeat?.leave();
    contender.attempt = undefined;
    if (!startedAt) contender.granted = this;
    else if (contender.granted) contender.granted = undefined;
    if (contender.error) contender.succeeded();
    contender.begin(grant, answer.waiting, startedAt);
  }

  private wait(sentAt: Instant, answer: Busy): void {
    const { contender } = this;
    contender.busy(answer);
    this.waits = true;
    this.base = sentAt;
    contender.contenders.answeredWithin(elapsedSince(sentAt));
    this.unissued = answer.unissued ?? 0;
    if (contender.overdue) contender.refuseOverdue();
    const caller = contender.first;
    if (!caller) return contender.quit();
    this.beatAfter(nextBeat(caller.options.ttl, answer, paceOf(contender, caller)));
    const { channel } = contender.contenders;
    if (!channel.isOpen) void channel.open();
  }

  /** The name is taken, and the ticket did not queue: callers that want to wait do so under the next one. */
  private refused(answer: Busy): void {
    const { contender } = this;
    this.end();
    if (this.released) return contender.askAfter(this.released);
    contender.busy(answer);
    contender.refuseOverdue();
    if (!contender.first) contender.forgetIfIdle();
    else void contender.contenders.channel.open().then(() => contender.goOn());
  }

  private beatAfter(delay: number): void {
    this.heartbeat?.leave();
    this.heartbeat = this.contender.backend.calls.ticks.start(performance.now() + delay, () => this.beat());
  }

  private beat(): void {
    const { contender, ticket, ttl } = this;
    const { backend, contenders, name, names, mode } = contender;
    const { calls } = backend;
    this.heartbeat?.leave();
    this.heartbeat = undefined;
    const sentAt = currentInstant();
    calls.send(
      'acquire',
      names,
      () => contenders.queue.beat({ name, ticket, mode, ttl }),
      (answer) => {
        if (answer.status !== 'gone') this.answered(sentAt, answer);
        else if (contender.attempt === this) {
          this.end();
          contender.goOn();
        }
      },
      (error) => {
        if (contender.attempt !== this) return;
        if (calls.refusal) return this.failed(error);
        contender.error = error;
        this.beatAfter(contender.backOff());
      },
      contender.first?.options.commandTimeout,
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
function paceOf({ contenders, name }: Contender, caller: Caller): number | undefined {
  const pace = contenders.queue.pace?.({ name });
  return pace === undefined ? undefined : Math.min(pace, Math.max(caller.remaining() / 2, SHORTEST_PACE));
}
