import { SemaphoreTimeoutError } from '../../errors/primitive-errors.js';
import { semaphoreChannels, type SemaphoreCall, type SemaphoreFailed } from '../../events/semaphore-channels.js';
import { listenToAbort } from '../../timing/abort-listeners.js';
import { type Expiring, mayEnd, mustNotEnd, type Timeout } from '../../timing/clock.js';
import { LinkedList, Place } from '../../timing/brief-collections.js';
import { ACQUISITION, HeldPermit, type PermitTurn } from './held-permit.js';
import { PermitBid } from './permit-bid.js';
import { callOf, publishAcquired, publishRefusal } from './permit-events.js';
import type { PermitSource } from './permit-source.js';
import type { SemaphoreSettings } from './semaphore-options.js';

/** How many calls of a line make a crowd, which is served in turns: a round trip for each permit would hold it up. */
const CROWD = 16;
/** How long (ms) a call waits in a crowd, which turns may serve soon, before it has a bid for itself. */
const PATIENCE = 50;

/**
 * The calls of this process that want the same of one semaphore, in order of arrival. Bids at the store ask for them,
 * and the first call gets whatever a bid is granted. Each call has a bid, so that processes get permits in the order in
 * which their calls came.
 *
 * In a crowd, the next calls get what the first one had for the rest of the turn. Every second call has a bid, as far
 * as there are permits, and each one from `PATIENCE` on.
 */
export class PermitLine {
  /** How many bids have a request under way, also those of calls that try once. */
  asking = 0;
  private readonly calls = new LinkedList<PermitCall>();
  private waiting = 0;
  /** The calls that try once; each has a bid of its own. */
  private readonly tries = new LinkedList<PermitCall>();
  /** Those for the first call that waits; each leaves when it ends. */
  private readonly bids = new LinkedList<PermitBid>();
  bidding = 0;
  /** Bids that wait in the queue at the store. */
  queued = 0;
  /** How many calls of this process hold permits of it. */
  holders = 0;
  /** Turns that may have another holder within this tick. */
  kept: PermitTurn[] = [];
  private patience: NodeJS.Timeout | undefined = undefined;
  private tickEnds = false;
  /** Why the last request failed; `undefined` once the store has answered. */
  private failure: Error | undefined = undefined;
  /** Whether the wait of some call is over, and it stays only for an answer that is under way. */
  private overdue = false;
  private readonly onTickEnd = () => this.endTick();

  constructor(
    readonly source: PermitSource,
    readonly name: string,
    readonly settings: Pick<SemaphoreSettings, 'permits' | 'count' | 'ttl'>,
  ) {}

  /** Whether calls with these settings want the same. */
  serves({ permits, count, ttl }: SemaphoreSettings): boolean {
    const own = this.settings;
    return permits === own.permits && count === own.count && ttl === own.ttl;
  }

  join(call: PermitCall): void {
    call.line = this;
    if (call.triesOnce) return this.tryOnce(call);
    if (this.kept[0]?.goesOn) return call.admit(this.kept.shift() as PermitTurn);
    if (this.kept.length > 0) this.giveBackKept();
    this.calls.push(call);
    this.waiting += 1;
    if (this.queued > 0) call.meetContention();
    this.haveBids(this.queued > 0);
    if (this.bidding < this.waiting) this.haveBidsLater();
  }

  /** The wait of the call is over. */
  expired(call: PermitCall): void {
    if (this.asking === 0) return call.refuse(this.failure ?? call.timedOut(), 'backend');
    call.overdue = this.overdue = true;
  }

  /** The call waits no more. */
  left(call: PermitCall): void {
    if (!call.leave()) return;
    if (call.triesOnce) {
      call.bid?.giveUp();
      if (this.asking === 0) this.refuseOverdue();
      return this.forgetIfIdle();
    }
    this.waiting -= 1;
    if (this.bidding > this.waiting || this.waiting === CROWD - 1) this.lookAtTickEnd();
  }

  /** The bid has ended. Returns whether anybody waits for what it was granted. */
  granted(bid: PermitBid, turn: PermitTurn): boolean {
    this.failure = undefined;
    const call = bid.call ?? this.calls.first;
    if (!call) return false;
    call.admit(turn);
    // After a grant at once, more permits may be free.
    this.haveBids(turn.fromQueue);
    if (this.overdue) this.lookAtTickEnd();
    return true;
  }

  /** The store answered that too few permits are free. */
  busy(bid: PermitBid): void {
    this.failure = undefined;
    if (bid.call) {
      bid.call.meetContention();
      // The store keeps nothing of a ticket that does not queue.
      bid.giveUp({ kept: false });
      return bid.call.refuse(bid.call.timedOut(), 'backend');
    }
    if (!bid.queued) this.queued += 1;
    bid.queued = true;
    if (semaphoreChannels.contended.hasSubscribers) for (const each of this.calls.toArray()) each.meetContention();
    this.refuseOverdue();
  }

  /** The ticket has no place in the queue at the store, and asks for one. */
  asksAnew(bid: PermitBid): void {
    if (bid.call) return bid.call.refuse(bid.call.timedOut(), 'backend');
    if (bid.queued) this.queued -= 1;
    bid.queued = false;
    this.refuseOverdue();
  }

  failed(bid: PermitBid, error: Error): void {
    if (bid.call) return bid.call.refuse(error, 'backend');
    this.failure = error;
    // Nobody waits for it to change its mind.
    if (this.source.calls.goesOnRefusing(error)) for (const call of this.calls.toArray()) call.refuse(error, 'backend');
    this.refuseOverdue();
  }

  /** Whether the permits stay with this process: for a call that waits or, with `mayStay`, for one that may come. */
  keeps(turn: PermitTurn, mayStay: boolean): boolean {
    // After a grant out of the queue, calls of other processes may be next.
    const wanted = this.waiting >= CROWD || (mayStay && !turn.fromQueue && this.waiting === 0 && this.holders > 0);
    return wanted && turn.goesOn;
  }

  passOn(turn: PermitTurn): void {
    this.calls.first?.meetContention();
    const call = this.calls.first;
    if (call) return call.admit(turn);
    this.kept.push(turn);
    this.lookAtTickEnd();
  }

  /** Gives the permits back that nobody has come for. */
  giveBackKept(): void {
    for (const turn of this.kept) {
      this.source.watchdog.unwatch(turn);
      this.source.giveBack(turn.request, this.settings.ttl, { held: true });
    }
    this.kept = [];
  }

  forgetIfIdle(): void {
    if (this.calls.first || this.tries.first || this.bids.first || this.holders > 0 || this.kept.length > 0) return;
    clearTimeout(this.patience);
    this.patience = undefined;
    const { lines } = this.source;
    const ofName = lines.get(this.name) ?? [];
    const index = ofName.indexOf(this);
    if (index >= 0) ofName.splice(index, 1);
    if (ofName.length === 0) lines.delete(this.name);
  }

  close(error: (name: string) => Error): void {
    for (const call of [...this.calls.toArray(), ...this.tries.toArray()]) call.refuse(error(this.name), 'shutdown');
    this.endTick();
  }

  private tryOnce(call: PermitCall): void {
    this.source.giveBackKept(this.name);
    this.tries.push(call);
    const bid = (call.bid = new PermitBid(this.source, this, call));
    bid.ask();
  }

  private refuseOverdue(): void {
    if (!this.overdue) return;
    this.overdue = false;
    for (const call of this.calls.toArray()) {
      if (call.overdue) call.refuse(this.failure ?? call.timedOut(), 'backend');
    }
  }

  /**
   * Makes bids until there are enough: one for each call, in a crowd fewer, but one for each of `late` calls. `queued`:
   * bids have to wait in the queue at the store.
   */
  private haveBids(queued: boolean, late = 0): void {
    let enough = this.waiting;
    if (enough >= CROWD) {
      // More cannot be granted at a time. The turns under way can serve half of the calls before a bid is one too many.
      const most = Math.floor(this.settings.permits / this.settings.count);
      enough = Math.max(late, queued ? Math.min(most, Math.ceil(enough / 2)) : most);
    }
    while (this.bidding < Math.min(enough, this.waiting)) {
      const bid = new PermitBid(this.source, this);
      this.bids.push(bid);
      this.bidding += 1;
      bid.ask();
    }
  }

  private haveBidsLater(ms = PATIENCE): void {
    this.patience ??= setTimeout(() => {
      this.patience = undefined;
      const before = performance.now() - PATIENCE + 1; // a timer may be early
      let [late, call] = [0, this.calls.first];
      for (; call && call.startedAt <= before; call = call.after) late += 1;
      this.haveBids(true, late);
      if (this.bidding < this.waiting) this.haveBidsLater(call && call.startedAt - before);
    }, ms).unref();
  }

  private lookAtTickEnd(): void {
    if (this.tickEnds) return;
    this.tickEnds = true;
    process.nextTick(this.onTickEnd);
  }

  /** A call that asks again within the tick gets what was kept, or needs the bid of the call before. */
  private endTick(): void {
    this.tickEnds = false;
    this.giveBackKept();
    for (let { last } = this.bids; last && this.bidding > this.waiting; last = this.bids.last) last.giveUp();
    // Each call that is left of a crowd needs a place in the queue.
    if (this.waiting < CROWD) this.haveBids(false);
    if (this.asking === 0) this.refuseOverdue();
    this.forgetIfIdle();
  }
}

/** One call that wants permits: how long it waits, and what it gets. */
export class PermitCall extends Place implements Expiring {
  readonly startedAt = performance.now();
  /** Whether it asks the store once, and does not wait. */
  readonly triesOnce: boolean;
  /** Of its events, once it has published one. */
  recorded: SemaphoreCall | undefined = undefined;
  /** What asks the store for it alone, where it tries once. */
  bid: PermitBid | undefined = undefined;
  /** The wait is over, and the call stays only for an answer that is under way. */
  overdue = false;
  /** It waits no more. */
  over = false;
  private metContention = false;
  /** Where it waits. */
  line: PermitLine | undefined = undefined;
  private timeout: Timeout | undefined = undefined;
  private abortion: { leave(): void } | undefined = undefined;

  constructor(
    private readonly source: PermitSource,
    readonly name: string,
    readonly settings: SemaphoreSettings,
    private readonly resolve: (permit: HeldPermit) => void,
    private readonly reject: (error: unknown) => void,
  ) {
    super();
    this.before = this.after = this.list = undefined;
    const { wait, signal } = settings;
    this.triesOnce = wait === 0;
    mustNotEnd();
    if (signal) this.abortion = listenToAbort(signal, () => this.refuse(signal.reason, 'aborted'));
    if (wait > 0 && wait !== Infinity) this.timeout = source.timeouts.start(wait, this);
    if (semaphoreChannels.attempt.hasSubscribers) semaphoreChannels.attempt.publish({ call: this.call, wait });
  }

  get call(): SemaphoreCall {
    return (this.recorded ??= callOf(this.source.eventSource, this.name, this.settings));
  }

  expire(): void {
    const { calls } = this.source;
    if (this.overdue) {
      const why = `no answer within ${calls.commandTimeout} ms`;
      return this.refuse(calls.gaveUp(ACQUISITION, this.name, why), 'backend');
    }
    this.line?.expired(this);
    // What is under way still decides, for one `commandTimeout`: a request, or a grant that has to be renewed.
    if (!this.over) this.timeout = calls.limits.start(calls.commandTimeout, this);
  }

  /** It is the next to hold the permits of the turn, and keeps the process alive for as long as it does. */
  admit(turn: PermitTurn): void {
    const { source } = this;
    const permit = new HeldPermit(turn, this.settings, source, this.recorded);
    source.live.add(permit);
    turn.line.holders += 1;
    source.watchdog.watch(turn);
    this.end();
    const { acquired, released, lost } = semaphoreChannels;
    if (acquired.hasSubscribers || released.hasSubscribers || lost.hasSubscribers) {
      publishAcquired(permit, this.startedAt);
    }
    this.resolve(permit);
  }

  refuse(error: unknown, reason: SemaphoreFailed['reason']): void {
    if (this.over) return;
    this.end();
    mayEnd();
    this.reject(error);
    publishRefusal(this, error, reason);
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
    this.timeout?.leave();
    this.abortion?.leave();
    this.line?.left(this);
  }
}
