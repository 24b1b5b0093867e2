import { randomUUID } from 'node:crypto';
import type { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import { nextHeartbeat, type Timeout, currentInstant } from '../../timing/clock.js';
import { LinkedList, PlaceOf } from '../../timing/brief-collections.js';
import { isPermit } from '../runtime.js';
import type { PermitBid } from './permit-bid.js';
import type { PermitSource } from './permit-source.js';

/** How often (ms) a process asks for its waiters at a semaphore: what a lost message costs. */
const BEAT = 400;
/** A heartbeat that waits for the end of a lease is sent this much (ms) after it. */
const AFTER_END = 5;
/** How many waiters one heartbeat asks for: the oldest ones, because they are granted first, and some of the others. */
const [OLDEST, OTHERS] = [90, 10];

/**
 * The bids of one process, each with a ticket at the store. Sends one heartbeat for all that wait in the queue of a
 * semaphore, and delivers the messages.
 */
export class SemaphoreQueues {
  // By the number of the ticket. Not a Map, whose outgrown tables would keep ended bids: see `LinkedList`.
  private readonly bids = Object.create(null) as Record<number, PermitBid>;
  private readonly queues = new Map<string, Queue>();
  private listening = false;
  /** What the tickets of this process begin with. */
  readonly process = randomUUID();
  /** The number of the last of them. */
  private lastTicket = 0;

  constructor(private readonly source: PermitSource) {}

  /** Returns a new ticket for the bid, which messages for that ticket reach from now on. */
  enter(bid: PermitBid): string {
    this.lastTicket += 1;
    bid.number = this.lastTicket;
    this.bids[bid.number] = bid;
    return `${this.process}:${bid.number}`;
  }

  /** The ticket stands in the queue at the store; the next lease there ends in `nextEnd` ms. */
  wait(bid: PermitBid, nextEnd: number): void {
    this.listen();
    let queue = this.queues.get(bid.name);
    if (!queue) this.queues.set(bid.name, (queue = new Queue(this.source, bid.name)));
    queue.add(bid, nextEnd);
  }

  leave(bid: PermitBid): void {
    delete this.bids[bid.number];
    const queue = this.queues.get(bid.name);
    if (!queue?.remove(bid)) return;
    this.queues.delete(bid.name);
    if (this.queues.size === 0) this.close();
  }

  private listen(): void {
    if (this.listening) return;
    this.listening = true;
    this.source.store.listen({
      process: this.process,
      // Somebody else may have sent what is none: it counts as lost, and a heartbeat finds out.
      onGrant: (ticket, grant) => {
        if (typeof ticket === 'string' && isPermit(grant)) this.bids[numberOf(ticket)]?.grantedByMessage(grant);
      },
      onConnected: () => {
        for (const queue of this.queues.values()) queue.beatIn(0);
      },
    });
  }

  private close(): void {
    this.listening = false;
    this.source.store.unlisten(this.process);
  }
}

/** V8 takes 3 µs to make a text that was composed the name of a property. */
function numberOf(ticket: string): number {
  return Number(ticket.slice(ticket.lastIndexOf(':') + 1));
}

/** The waiters of this process at one semaphore, in the order of their tickets. */
class Queue {
  private readonly waiters = new LinkedList<PlaceOf<PermitBid>>();
  private timer: Timeout | undefined;
  private beatAt = Infinity;
  private beating = false;
  /** The index of the first of the others that the next heartbeat asks for. */
  private firstOther = OLDEST;

  constructor(
    private readonly source: PermitSource,
    private readonly name: string,
  ) {}

  add(bid: PermitBid, nextEnd: number): void {
    // A bid whose claim ended before it could confirm it asks again, and is a waiter already.
    bid.queuePlace ??= this.waiters.push(new PlaceOf(bid));
    this.beatIn(Math.min(BEAT, nextEnd + AFTER_END));
  }

  /** Returns whether nobody waits any more. */
  remove(bid: PermitBid): boolean {
    bid.queuePlace?.leave();
    bid.queuePlace = undefined;
    if (this.waiters.first) return false;
    this.timer?.leave();
    this.beatAt = Infinity;
    return true;
  }

  /** Sends a heartbeat in `ms`, unless one is due earlier. */
  beatIn(ms: number): void {
    let at = performance.now() + ms;
    if (ms === BEAT) at = nextHeartbeat(at, BEAT);
    if (at >= this.beatAt || this.beating) return;
    this.timer?.leave();
    this.beatAt = at;
    this.timer = this.source.calls.ticks.start(at, () => this.beat());
  }

  private beat(): void {
    const { source, name } = this;
    const asked = this.askedFor();
    const [first] = asked;
    this.beatAt = Infinity;
    if (!first) return;
    const { permits } = first.line.settings;
    const waiters = asked.map(({ request }) => request);
    const sentAt = currentInstant();
    this.beating = true;
    source.calls
      .run('heartbeat at semaphore', name, () =>
        source.store.beat({ name, process: source.queues.process, permits, waiters }),
      )
      .then(
        ({ states, nextEnd, lastToken }) => {
          this.beating = false;
          for (const [index, bid] of asked.entries()) {
            const state = states[index];
            // A bid that has asked anew meanwhile has another ticket.
            if (state && bid.request.ticket === waiters[index]?.ticket) bid.told(sentAt, state, lastToken);
          }
          const lost = states.some(({ status }) => status === 'gone');
          this.next(lost ? 0 : Math.min(BEAT, nextEnd + AFTER_END));
        },
        (error: PrimitiveBackendError) => {
          this.beating = false;
          for (const { value } of this.waiters.toArray()) value.beatFailed(error);
          this.next(BEAT);
        },
      );
  }

  private next(ms: number): void {
    if (this.waiters.first) this.beatIn(ms);
  }

  /** Takes turns with the others: the oldest ones may all want more permits than there are by now. */
  private askedFor(): PermitBid[] {
    const asked: PermitBid[] = [];
    const end = this.firstOther + OTHERS;
    let index = 0;
    for (let place = this.waiters.first; place && index < end; place = place.after) {
      if (index < OLDEST || index >= this.firstOther) asked.push(place.value);
      index += 1;
    }
    this.firstOther = index < end ? OLDEST : end;
    return asked;
  }
}
