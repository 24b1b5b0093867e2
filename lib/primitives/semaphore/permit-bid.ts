import type {
  AcquirePermitsAnswer,
  PermitRequest,
  PermitsGranted,
  WaiterState,
} from '../../contracts/primitive-stores.js';
import type { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import { backoff, currentInstant, type Instant } from '../../timing/clock.js';
import { Place, type PlaceOf } from '../../timing/brief-collections.js';
import { ACQUISITION, PermitTurn } from './held-permit.js';
import type { PermitCall, PermitLine } from './permit-line.js';
import type { PermitSource } from './permit-source.js';

/** What an answer or a message says that the ticket was granted. */
type Grant = Omit<PermitsGranted, 'status'>;

/**
 * One ticket that asks the store for permits, and waits in its queue if it has to; the grant comes as the answer to a
 * request or as a message.
 *
 * A message may have been under way for any time. Its lease counts from when the last request was sent that was
 * answered with "waiting": the grant cannot be older. A message whose token that answer knew already is of an earlier
 * place in the queue, which the ticket got by a request without an answer, and of a claim that has ended since.
 */
export class PermitBid extends Place {
  readonly name: string;
  /** Its ticket, and what that is for. */
  request: PermitRequest;
  /** The number of its ticket among those of this process. */
  number = 0;
  /** When the last request was sent that was answered with "waiting"; before that, when the ticket was first sent. */
  private base: Instant = currentInstant();
  /** The last fencing token of the semaphore by that answer. */
  private lastToken: number;
  /** The newest token that the process had seen before the ticket was first sent: every grant of it is above. */
  private seen: number;
  private asking = false;
  private over = false;
  private failures = 0;
  private turn: PermitTurn | undefined = undefined;
  /** Whether the ticket waits in the queue at the store, as far as this process knows. */
  queued = false;
  /** Its place among the tickets of its process in the queue. */
  queuePlace: PlaceOf<PermitBid> | undefined = undefined;

  constructor(
    private readonly source: PermitSource,
    /** The calls that it is made for. */
    readonly line: PermitLine,
    /** The one call that it is made for; other bids are made for the first call that waits. */
    readonly call?: PermitCall,
  ) {
    super();
    this.before = this.after = this.list = undefined;
    this.name = line.name;
    this.request = { name: line.name, ticket: source.queues.enter(this), count: line.settings.count };
    this.lastToken = this.seen = source.floor.of(line.name);
  }

  /** Nobody waits for it any more; what the store may keep of the ticket is given back, unless it keeps nothing. */
  giveUp({ kept = true } = {}): void {
    if (this.over) return;
    this.end();
    if (kept) this.source.giveBack(this.request, this.line.settings.ttl, { unanswered: this.failures > 0 });
  }

  /** A message said that the ticket was granted its permits. */
  grantedByMessage(grant: Grant): void {
    if (grant.fencingToken > this.lastToken) this.granted(this.base, grant);
  }

  /** The answer to a heartbeat that was sent at `sentAt`. */
  told(sentAt: Instant, state: WaiterState, lastToken: number): void {
    if (this.over || this.asking) return;
    if (state.status === 'granted') this.granted(sentAt, state);
    else if (state.status === 'gone') this.askAnew();
    else {
      [this.base, this.lastToken] = [sentAt, Math.max(lastToken, this.seen)];
      this.line.busy(this);
    }
  }

  /** A heartbeat failed. */
  beatFailed(error: PrimitiveBackendError): void {
    if (!this.over) this.line.failed(this, error);
  }

  ask(): void {
    const { source, line, call, request } = this;
    const { permits, ttl } = line.settings;
    const { name, ticket, count } = request;
    const sentAt = currentInstant();
    const [queues, leastToken] = [call === undefined, this.seen + 1];
    this.setAsking(true);
    source.calls.ask(
      ACQUISITION,
      name,
      () => source.store.acquire({ name, ticket, count, permits, ttl, queues, leastToken }),
      (answer) => {
        if (this.over) return this.answeredLate(request, answer);
        this.setAsking(false);
        this.failures = 0;
        if (answer.status === 'granted') return this.granted(sentAt, answer);
        [this.base, this.lastToken] = [sentAt, Math.max(answer.lastToken, this.seen)];
        if (!call) source.queues.wait(this, answer.nextEnd);
        line.busy(this);
      },
      (error) => this.failed(error),
      { late: (answer) => this.answeredLate(request, answer) },
    );
  }

  /**
   * The bid is over, or has asked with another ticket. A grant that it did not get goes back, and so does a place in
   * the queue: a request that was sent twice may have entered the queue after the release.
   */
  private answeredLate(request: PermitRequest, answer: AcquirePermitsAnswer): void {
    const { source, turn } = this;
    if (request === this.request && (!this.over || turn?.over === false)) return;
    if (answer.status === 'granted' || !this.call) source.giveBack(request, this.line.settings.ttl);
  }

  /** `confirmed`: renewed just now, so that a caller enters with whatever is left. */
  private granted(sentAt: Instant, grant: Grant, confirmed = false): void {
    if (this.over) return;
    const { fencingToken, tokens } = grant;
    if (!(fencingToken > this.seen && Number.isSafeInteger(fencingToken + tokens)))
      return this.refuseToken(fencingToken);
    const { source, line, name, request } = this;
    const { ttl } = line.settings;
    const lease = source.trusted(name, grant.remaining, ttl);
    const turn = new PermitTurn(request, line, sentAt, lease, { first: fencingToken, count: tokens }, this.queued);
    if (!turn.isEnough) {
      if (!confirmed) return this.confirm(grant);
      if (turn.remaining() <= 0) return this.failed(source.grantedTooLate(name, ttl));
    }
    this.end();
    source.floor.saw(name, fencingToken + tokens - 1);
    if (line.granted(this, turn)) this.turn = turn;
    else source.giveBack(request, ttl);
  }

  /** Gives a grant back whose fencing token is none, or was seen already; asks with another ticket. */
  private refuseToken(token: number): void {
    const { source, line, call } = this;
    source.giveBack(this.request, line.settings.ttl);
    const error = source.refusalOf(this.name, token);
    if (call) {
      this.end();
      return line.failed(this, error);
    }
    this.takeAnotherTicket();
    this.failed(error);
  }

  /** Takes another ticket, which has not been sent yet. */
  private takeAnotherTicket(): void {
    const { source } = this;
    source.queues.leave(this);
    this.request = { ...this.request, ticket: source.queues.enter(this) };
    this.base = currentInstant();
    this.lastToken = this.seen = source.floor.of(this.name);
    this.line.asksAnew(this);
  }

  /** Renews a grant of which little is left. */
  private confirm({ fencingToken, tokens }: Grant): void {
    if (this.asking) return;
    this.setAsking(true);
    const sentAt = currentInstant();
    const request = { ...this.request, ttl: this.line.settings.ttl };
    const { calls, store } = this.source;
    // A call that tries once has one `commandTimeout` for both requests.
    const spent = this.call ? performance.now() - this.call.startedAt : 0;
    const limit = Math.max(1, calls.commandTimeout - spent);
    calls
      .run('renewal of a permit of semaphore', this.name, () => store.renew(request), { limit })
      .then(
        (remaining) => {
          if (this.over) return;
          this.setAsking(false);
          if (remaining === undefined) this.askAnew();
          else this.granted(sentAt, { remaining, fencingToken, tokens }, true);
        },
        (error: PrimitiveBackendError) => this.failed(error),
      );
  }

  /** Asks again after a pause, unless the line gives it up. */
  private failed(error: PrimitiveBackendError): void {
    if (this.over) return;
    this.setAsking(false);
    const again = () => {
      if (!this.over && !this.asking) this.ask();
    };
    setTimeout(again, backoff(this.failures)).unref();
    this.failures += 1;
    this.line.failed(this, error);
  }

  /** Asks with another ticket, because the store has forgotten this one. */
  private askAnew(): void {
    this.takeAnotherTicket();
    if (!this.over) this.ask();
  }

  private setAsking(asking: boolean): void {
    if (asking !== this.asking) this.line.asking += asking ? 1 : -1;
    this.asking = asking;
  }

  private end(): void {
    const { line } = this;
    this.over = true;
    this.setAsking(false);
    if (this.leave()) {
      line.bidding -= 1;
      if (this.queued) line.queued -= 1;
    }
    this.source.queues.leave(this);
  }
}
