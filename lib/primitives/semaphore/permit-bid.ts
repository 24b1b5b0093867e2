import type {
  AcquirePermitsAnswer,
  PermitRequest,
  PermitsGranted,
  SemaphoreStore,
  WaiterState,
} from '../../contracts/primitive-stores.js';
import type { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import { backoff, currentInstant, type Instant } from '../../timing/clock.js';
import type { Place } from '../../timing/linked-list.js';
import type { PrimitiveCalls } from '../runtime.js';
import type { PermitCall } from './permit-line.js';
import { grantOf, isEnough, trustedOf, type PermitGrant, type PermitTurn } from './permit-watchdog.js';
import type { SemaphoreSettings } from './semaphore-options.js';

const OPERATION = 'acquisition of a permit of semaphore';

/** What a bid uses of its process. */
export interface BidDesk {
  readonly store: SemaphoreStore;
  readonly calls: PrimitiveCalls;
  readonly queues: {
    /** From now on, messages for the ticket of the bid reach it. */
    enter(bid: PermitBid): void;
    /** The ticket stands in the queue at the store; the next lease there ends in `nextEnd` ms. */
    wait(bid: PermitBid, nextEnd: number): void;
    leave(bid: PermitBid): void;
  };
  newTicket(): string;
  /** Gives permits back, or takes the ticket out of the queue. */
  giveBack(request: PermitRequest, lease: number): void;
}

/** The calls that a bid is made for. */
export interface Bidder {
  readonly name: string;
  readonly settings: Pick<SemaphoreSettings, 'permits' | 'count' | 'ttl'>;
  /** How many bids have a request under way, also those of calls that try once. */
  asking: number;
  /** The bid has ended. Returns the turn, or nothing if nobody waits for it any more. */
  granted(bid: PermitBid, grant: PermitGrant): PermitTurn | undefined;
  /** The store answered that too few permits are free. */
  busy(bid: PermitBid): void;
  /** The ticket has no place in the queue at the store, and asks for one. */
  asksAnew(bid: PermitBid): void;
  failed(bid: PermitBid, error: PrimitiveBackendError): void;
}

/**
 * One ticket that asks the store for permits, and waits in its queue if it has to; the grant comes as the answer to a
 * request or as a message.
 *
 * A message may have been under way for any time. Its lease counts from when the last request was sent that was
 * answered with "waiting": the grant cannot be older. A message whose token that answer knew already is of an earlier
 * place in the queue, which the ticket got by a request without an answer, and of a claim that has ended since.
 */
export class PermitBid {
  private ticket: string;
  /** When the last request was sent that was answered with "waiting"; before that, when the ticket was first sent. */
  private base: Instant = currentInstant();
  /** The last fencing token of the semaphore by that answer. */
  private lastToken = 0;
  private asking = false;
  private over = false;
  private failures = 0;
  private turn: PermitTurn | undefined;
  /** Whether the ticket waits in the queue at the store, as far as this process knows. */
  queued = false;
  /** Its place among the bids of its line. */
  place: Place<PermitBid> | undefined;
  /** Its place among the tickets of its process in the queue. */
  queuePlace: Place<PermitBid> | undefined;

  constructor(
    private readonly desk: BidDesk,
    private readonly bidder: Bidder,
    /** The call that it is made for; others are made for the first call that waits. */
    readonly call?: PermitCall,
  ) {
    this.ticket = desk.newTicket();
  }

  get name(): string {
    return this.bidder.name;
  }

  get permits(): number {
    return this.bidder.settings.permits;
  }

  get request(): PermitRequest {
    return { name: this.name, ticket: this.ticket, count: this.bidder.settings.count };
  }

  begin(): void {
    this.desk.queues.enter(this);
    this.ask();
  }

  /** Nobody waits for it any more; what the store may keep of the ticket is given back, unless it keeps nothing. */
  giveUp({ kept = true } = {}): void {
    if (this.over) return;
    this.end();
    if (kept) this.desk.giveBack(this.request, this.bidder.settings.ttl);
  }

  /** A message said that the ticket was granted its permits. */
  grantedByMessage(grant: Omit<PermitsGranted, 'status'>): void {
    if (grant.fencingToken > this.lastToken) this.granted(grantOf(this.base, grant));
  }

  /** The answer to a heartbeat that was sent at `sentAt`. */
  told(sentAt: Instant, state: WaiterState, lastToken: number): void {
    if (this.over || this.asking) return;
    if (state.status === 'granted') this.granted(grantOf(sentAt, state));
    else if (state.status === 'gone') this.askAnew();
    else {
      [this.base, this.lastToken] = [sentAt, lastToken];
      this.bidder.busy(this);
    }
  }

  /** A heartbeat failed. */
  beatFailed(error: PrimitiveBackendError): void {
    if (!this.over) this.bidder.failed(this, error);
  }

  private ask(): void {
    const { desk, call } = this;
    const { permits, ttl } = this.bidder.settings;
    const [request, sentAt] = [this.request, currentInstant()];
    const { name, ticket, count } = request;
    this.setAsking(true);
    desk.calls.ask(
      OPERATION,
      name,
      () => desk.store.acquire({ name, ticket, count, permits, ttl, queues: call === undefined }),
      (answer) => this.answered(sentAt, request, answer),
      (error) => this.failed(error),
      { late: (answer) => this.answeredLate(request, answer) },
    );
  }

  private answered(sentAt: Instant, request: PermitRequest, answer: AcquirePermitsAnswer): void {
    if (this.over) return this.answeredLate(request, answer);
    this.setAsking(false);
    this.failures = 0;
    if (answer.status === 'granted') return this.granted(grantOf(sentAt, answer));
    [this.base, this.lastToken] = [sentAt, answer.lastToken];
    if (!this.call) this.desk.queues.wait(this, answer.nextEnd);
    this.bidder.busy(this);
  }

  /**
   * The bid is over, or has asked with another ticket. A grant that it did not get goes back, and so does a place in
   * the queue: a request that was sent twice may have entered the queue after the release.
   */
  private answeredLate(request: PermitRequest, answer: AcquirePermitsAnswer): void {
    const { desk, turn } = this;
    if (request.ticket === this.ticket && (!this.over || turn?.over === false)) return;
    if (answer.status === 'granted') desk.giveBack(request, answer.remaining);
    else if (!this.call) desk.giveBack(request, this.bidder.settings.ttl);
  }

  /** `confirmed`: renewed just now, so that a caller enters with whatever is left. */
  private granted(grant: PermitGrant, confirmed = false): void {
    if (this.over) return;
    if (!isEnough(grant)) {
      if (!confirmed) return this.confirm(grant);
      if (trustedOf(grant) <= 0) return this.failed(this.tooLate());
    }
    this.end();
    this.turn = this.bidder.granted(this, grant);
    if (!this.turn) this.desk.giveBack(this.request, this.bidder.settings.ttl);
  }

  /** Renews a grant of which little is left. */
  private confirm({ fencingToken, tokens }: PermitGrant): void {
    if (this.asking) return;
    this.setAsking(true);
    const sentAt = currentInstant();
    const request = { ...this.request, ttl: this.bidder.settings.ttl };
    this.desk.calls
      .run('renewal of a permit of semaphore', this.name, () => this.desk.store.renew(request))
      .then(
        (remaining) => {
          if (this.over) return;
          this.setAsking(false);
          if (remaining === undefined) this.askAnew();
          else this.granted({ sentAt, remaining, fencingToken, tokens }, true);
        },
        (error: PrimitiveBackendError) => this.failed(error),
      );
  }

  private tooLate(): PrimitiveBackendError {
    const { ttl } = this.bidder.settings;
    return this.desk.calls.failure(OPERATION, this.name, `granted too late: the lease of ${ttl} ms had ended`);
  }

  /** Asks again after a pause, unless the bidder gives it up. */
  private failed(error: PrimitiveBackendError): void {
    if (this.over) return;
    this.setAsking(false);
    const again = () => {
      if (!this.over && !this.asking) this.ask();
    };
    setTimeout(again, backoff(this.failures)).unref();
    this.failures += 1;
    this.bidder.failed(this, error);
  }

  /** Asks with another ticket, because the store has forgotten this one. */
  private askAnew(): void {
    this.desk.queues.leave(this);
    this.ticket = this.desk.newTicket();
    [this.base, this.lastToken] = [currentInstant(), 0];
    this.bidder.asksAnew(this);
    if (!this.over) this.begin();
  }

  private setAsking(asking: boolean): void {
    if (asking !== this.asking) this.bidder.asking += asking ? 1 : -1;
    this.asking = asking;
  }

  private end(): void {
    this.over = true;
    this.setAsking(false);
    this.desk.queues.leave(this);
  }
}
