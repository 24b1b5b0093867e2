import type { LockQueue, QueueAnswer, QueueMessage } from '../../contracts/lock-queue.js';
import type { Busy } from '../../contracts/lock-requests.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import { LinkedList, Place } from '../../timing/brief-collections.js';
import {
  nextHeartbeat,
  currentInstant,
  elapsedSince,
  type Expiring,
  type Instant,
  type Ticks,
  type Timeout,
} from '../../timing/clock.js';
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
/** With more heartbeats under way, what else the process asks for would wait long behind them. */
const MOST_BEATS = 240;
/** Where a process has more waiters than send this many heartbeats with a pause of 1 s, each pauses for longer. */
const BEATS_A_SECOND = 2_000;
/** The longest of these pauses (ms). */
const LONGEST_PAUSE = 18_000;
/** How long (ms) an unanswered heartbeat counts among them. A waiter is passed over after 1.5 s without one. */
const BEAT_TIME = 100;

export type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/** How much longer than before a round trip may take, at each that is measured. */
const FORGETS = 1.1;

/**
 * One ticket of a contender. It **asks** for the name; if that is taken, it **waits** in the queue of the backend, with
 * heartbeats. It ends when it is granted the name, or given up: then what the backend may keep of it is released. It is
 * its own place among what is due next: thousands of names may be waited for.
 */
export class Attempt extends Place implements Expiring {
  private readonly number: number;
  /** Whether the backend has answered that the ticket waits. */
  waits = false;
  /** Readers of this process keep what it was granted, and release it. */
  declare leftToReaders: true | undefined;
  /** A release of this process that was under way when the ticket asked: it may find the name taken by that one. */
  declare private readonly released: Promise<unknown> | undefined;
  /**
   * When the last request was sent to which the backend answered that the ticket waits: every grant is later. In whole
   * ms, which V8 keeps without an object for each.
   */
  private monotonic: number;
  private wall: number;
  /** A message with a fencing token below this reports an earlier grant. */
  private unissued = 0;
  /** For how long (ms) the last heartbeat said that it may be the last. */
  declare private pause: number | undefined;

  constructor(
    private readonly contender: Contender,
    /** Whether the ticket may wait in the queue at the backend. */
    readonly queues: boolean,
    sentAt: Instant,
    /** The longest lease (ms) that the backend may grant it. */
    private readonly ttl: number,
    /** The lease (ms) that was asked for in case that it has to wait. */
    private readonly claim = ttl,
    released?: Promise<unknown>,
  ) {
    super();
    this.before = this.after = this.list = undefined;
    if (released) this.released = released;
    this.monotonic = Math.floor(sentAt.monotonic);
    this.wall = Math.floor(sentAt.wall);
    this.number = contender.contenders.nextNumber(contender);
  }

  /** Not kept: the text would be one more for each that waits. */
  get ticket(): string {
    return this.contender.contenders.beforeTickets + this.number;
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
    const { contenders } = contender;
    const took = elapsedSince(sentAt);
    contenders.roundTrip = contenders.roundTrip === 0 ? took : Math.min(took, FORGETS * contenders.roundTrip);
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
    const { calls, releaser } = contender.backend;
    if (!calls.refusal) releaser.abandonUnanswered({ names: contender.names, ticket: this.ticket }, this.ttl);
    if (contender.attempt !== this) return;
    this.end();
    contender.error = error;
    if (calls.goesOnRefusing(error)) contender.refuseAll(error);
    contender.refuseOverdue();
    if (contender.first) contender.pause();
    else contender.forgetIfIdle();
  }

  /** A message says that it was granted the name. */
  onGrant({ tokens, claim, waiting }: GrantMessage): void {
    if (tokens.first < this.unissued) return;
    const { monotonic, wall } = this;
    const base = { monotonic, wall };
    // That claim may have ended, and a second send of the request under way been granted the name anew, with the tokens
    // of its answer.
    if (!this.waits && elapsedSince(base) >= Math.min(claim, this.claim)) return;
    this.begun(base, { tokens, remaining: claim, waiting }, this.claim);
  }

  /** The owner's lease ends in `remaining` ms, sooner than the last answer said. */
  onLeaseEnds(remaining: number): void {
    const caller = this.contender.first;
    if (this.list && caller) this.beatAfter(nextBeat(caller.options.ttl, { first: true, remaining }, undefined));
  }

  /** Sends a heartbeat at once: messages may have been lost while the channel was closed. */
  onReconnect(): void {
    if (this.list) this.expire();
  }

  /** Releases what the backend may keep of the ticket. */
  abandon(): void {
    const { names, backend } = this.contender;
    const { ticket, ttl } = this;
    backend.releaser.abandon({ names, ticket }, ttl);
  }

  /** The ticket asks and waits no more. */
  end(): void {
    this.leave();
    const { contender } = this;
    if (this.waits) contender.contenders.heartbeats.waiters -= 1;
    if (contender.single) contender.forgetTicket(this.ticket);
    contender.attempt = undefined;
  }

  /** Whether a message has granted it the name, which this process still owns or has left to its readers. */
  get owns(): boolean {
    return this.leftToReaders === true || this.contender.owns(this.ticket);
  }

  private begun(base: Instant, answer: GrantedLease, asked: number, startedAt?: Instant): void {
    const { contender, ticket } = this;
    const { contenders, names, mode } = contender;
    const grant = contenders.backend.calls.granted({ names, ticket }, { base, asked, mode }, answer);
    this.leave();
    if (this.waits) contenders.heartbeats.waiters -= 1;
    contender.attempt = undefined;
    if (!startedAt) contender.granted = this;
    else if (contender.granted) contender.granted = undefined;
    if (contender.error) contender.succeeded();
    contender.begin(grant, answer.waiting, startedAt);
  }

  private wait(sentAt: Instant, answer: Busy): void {
    const { contender } = this;
    contender.busy(answer);
    if (!this.waits) contender.contenders.heartbeats.waiters += 1;
    this.waits = true;
    this.monotonic = Math.floor(sentAt.monotonic);
    this.wall = Math.floor(sentAt.wall);
    this.unissued = answer.unissued ?? 0;
    if (contender.overdue) contender.refuseOverdue();
    const caller = contender.first;
    if (!caller) return contender.quit();
    this.beatAfter(nextBeat(caller.options.ttl, answer, paceOf(contender, caller), this.pause));
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
    this.leave();
    this.contender.backend.calls.ticks.add(performance.now() + delay, this);
  }

  /** A heartbeat is due. */
  expire(): void {
    this.leave();
    this.contender.contenders.heartbeats.due(this);
  }

  /** Sends a heartbeat; calls `ended` when it has been answered, or has failed. */
  beat(ended: () => void): void {
    const { contender, ticket, ttl } = this;
    const { backend, contenders, name, names, mode } = contender;
    const { calls } = backend;
    const sentAt = currentInstant();
    const { pause } = contenders.heartbeats;
    if (pause !== this.pause) this.pause = pause;
    calls.send(
      'acquire',
      names,
      () => contenders.queue.beat({ name, ticket, mode, ttl, pause }),
      (answer) => {
        ended();
        if (answer.status !== 'gone') this.answered(sentAt, answer);
        else if (contender.attempt === this) {
          this.end();
          contender.goOn();
        }
      },
      (error) => {
        ended();
        if (contender.attempt !== this) return;
        if (calls.goesOnRefusing(error)) return this.failed(error);
        contender.error = error;
        this.beatAfter(contender.backOff());
      },
      contender.first?.options.commandTimeout,
    );
  }
}

/**
 * Sends the heartbeats of one process: a limited number at a time, and the others in order as these are answered. Those
 * of a node that does not answer keep the others for `BEAT_TIME` only.
 */
export class Heartbeats {
  private readonly waiting = new LinkedList<Attempt>();
  private underWay = 0;
  /** How often it has gone on without the answers that were due. */
  private rounds = 0;
  private limit: Timeout | undefined;
  /** How many tickets of the process wait. */
  waiters = 0;

  constructor(
    private readonly ticks: Ticks,
    private readonly queue: LockQueue,
    private readonly channel: { readonly isOpen: boolean },
  ) {}

  /** How long (ms) a ticket may pause after the heartbeat that is sent now; `undefined` for the usual time. */
  get pause(): number | undefined {
    const period = (this.waiters / BEATS_A_SECOND) * 1_000;
    // Without messages, a ticket learns of its grant by a heartbeat.
    if (period <= LONGEST_PERIOD || !this.queue.pauses || !this.channel.isOpen) return undefined;
    return Math.floor(Math.min(period, LONGEST_PAUSE));
  }

  due(attempt: Attempt): void {
    if (this.underWay < MOST_BEATS) return this.send(attempt);
    this.waiting.push(attempt);
    this.limit ??= this.ticks.start(performance.now() + BEAT_TIME, () => this.goOn());
  }

  private goOn(): void {
    this.limit = undefined;
    if (!this.waiting.first) return;
    this.rounds += 1;
    this.underWay = 0;
    while (this.underWay < MOST_BEATS && this.waiting.first) this.sendNext();
    if (this.waiting.first) this.limit = this.ticks.start(performance.now() + BEAT_TIME, () => this.goOn());
  }

  private sendNext(): void {
    const next = this.waiting.first;
    if (!next) return;
    next.leave();
    this.send(next);
  }

  private send(attempt: Attempt): void {
    const { rounds } = this;
    this.underWay += 1;
    let over = false;
    attempt.beat(() => {
      // An answer may come after the time limit.
      if (over) return;
      over = true;
      if (rounds !== this.rounds) return;
      this.underWay -= 1;
      this.sendNext();
    });
  }
}

/** The claim (ms) that a waiter is granted: the whole lease where that is the session of its process. */
export function claimOf({ backend }: Contender, ttl: number): number {
  return backend.calls.backend.traits.lease === 'session' ? ttl : Math.min(LONGEST_CLAIM, ttl);
}

/**
 * Milliseconds until the next heartbeat: half a claim, so that a lost message costs no more; twice that for a waiter
 * far from the head. A little less brings it nearer to the others of the process. The first waiter asks as soon as the
 * owner's lease ends. Where the queue sends no messages, every waiter asks at its `pace`. One of thousands of tickets
 * pauses for longer, but not beyond the owner's lease; what is left to chance spreads their heartbeats.
 */
function nextBeat(
  ttl: number,
  { first, far, unreached, remaining }: Pick<Busy, 'first' | 'far' | 'unreached' | 'remaining'>,
  pace: number | undefined,
  pause = 0,
): number {
  if (pace !== undefined) return Math.min(pace, remaining + 1);
  const near = Math.max(Math.min(LONGEST_CLAIM, ttl) / 2, SHORTEST_PERIOD);
  if (unreached) return Math.min(near, UNREACHED_PERIOD);
  const period = far ? Math.min(2 * near, LONGEST_PERIOD) : near;
  if (first && remaining < period) return remaining + 1;
  if (pause > 0) return Math.min(pause * (0.8 + Math.random() / 5), Math.max(period, remaining + 1));
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
