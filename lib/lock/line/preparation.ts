import type { Minted } from '../../contracts/lock-requests.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import { currentInstant } from '../../timing/clock.js';
import type { Grant } from '../grant/grant.js';
import type { Contention } from './line.js';

/** The turn whose grant is prepared. */
export interface PreparedTurn {
  readonly grant: Grant | undefined;
  /** Admits the next caller. */
  serve(grant: Grant): void;
  /** Another process waits for the name that the ticket owns. */
  wantedElsewhere(ticket: string): void;
  /** The process has lost the name: the backend said so, or the lease has ended. */
  disowned(grant: Grant): void;
  /** Releases a grant that no caller waits for. */
  giveUp(grant: Grant): void;
}

/** Gets from the backend what a grant lacks for its next caller: fencing tokens, or a longer lease. */
export class Preparation {
  /** The lease (ms) that the last renewal gave: a store may grant less than the `ttl`. */
  renewedFor = Infinity;
  private minting = false;

  constructor(
    private readonly turn: PreparedTurn,
    private readonly contention: Contention,
  ) {}

  /** Reserves tokens, and then admits the next caller unless the grant has a holder. */
  mint(grant: Grant): void {
    if (this.minting) return;
    this.minting = true;
    this.contention.place.backend.calls.mint(
      this.contention.names,
      grant.ticket,
      0,
      (tokens) => this.minted(grant, tokens),
      (error) => this.failed(grant, error),
    );
  }

  private minted(grant: Grant, tokens: Minted | null): void {
    const { turn } = this;
    this.minting = false;
    if (turn.grant !== grant) return this.serveAnother();
    if (!tokens) return turn.disowned(grant);
    grant.addTokens(tokens);
    if (tokens.waiting) turn.wantedElsewhere(grant.ticket);
    if (!grant.holder) turn.serve(grant);
  }

  /** Renews the lease for `ttl` ms, and then admits the next caller. */
  renew(grant: Grant, ttl: number): void {
    const { turn } = this;
    const sentAt = currentInstant();
    const { names, ticket } = grant;
    this.contention.place.backend.calls.sendRenewal(
      { names, ticket, ttl },
      (answer) => {
        if (turn.grant !== grant || grant.holder) return;
        if (answer.status !== 'renewed') return turn.disowned(grant);
        grant.renewed(sentAt, answer.remaining);
        this.renewedFor = answer.remaining;
        turn.serve(grant);
      },
      (error) => this.failed(grant, error),
    );
  }

  /** Repeats the request after a pause, until the lease ends. */
  private failed(grant: Grant, error: LockBackendError): void {
    const { turn, contention } = this;
    this.minting = false;
    if (turn.grant !== grant) return this.serveAnother();
    if (grant.holder) return;
    contention.error = error;
    if (grant.remaining() <= 0) {
      contention.place.backend.releaser.abandon(grant, grant.longest);
      return turn.disowned(grant);
    }
    contention.refuseOverdue();
    if (!contention.callers.first) return turn.giveUp(grant);
    setTimeout(() => {
      if (turn.grant === grant && !grant.holder) turn.serve(grant);
    }, contention.backOff()).unref();
  }

  /** The request was made for an earlier grant; the present one may have waited for its end. */
  private serveAnother(): void {
    const { grant } = this.turn;
    if (grant && !grant.holder) this.turn.serve(grant);
  }
}
