import type { Minted } from '../../contracts/lock-requests.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import { currentInstant } from '../../timing/clock.js';
import type { Grant } from '../grant/grant.js';
import type { Contender } from './line.js';

/** Gets from the backend what a grant lacks for its next caller: fencing tokens, or a longer lease. */
export class Preparation {
  /** The lease (ms) that the last renewal gave: a store may grant less than the `ttl`. */
  renewedFor = Infinity;
  private minting = false;

  constructor(private readonly contender: Contender) {}

  /** Reserves tokens, and then admits the next caller unless the grant has a holder. */
  mint(grant: Grant): void {
    if (this.minting) return;
    this.minting = true;
    this.contender.backend.calls.mint(
      this.contender.names,
      grant.ticket,
      0,
      (tokens) => this.minted(grant, tokens),
      (error) => this.failed(grant, error),
      undefined,
      this.contender.mode,
    );
  }

  private minted(grant: Grant, tokens: Minted | null): void {
    const { contender } = this;
    this.minting = false;
    if (contender.grant !== grant) return this.serveAnother();
    if (!tokens) return contender.disowned(grant);
    grant.addTokens(tokens);
    if (tokens.waiting) contender.wantedElsewhere(grant.ticket);
    if (!grant.holder) contender.serve(grant);
  }

  /** Renews the lease for `ttl` ms, and then admits the next caller. */
  renew(grant: Grant, ttl: number): void {
    const { contender } = this;
    const sentAt = currentInstant();
    const { names, ticket } = grant;
    const { calls } = this.contender.backend;
    // Unless it is answered, the backend may have carried it out.
    if (ttl > grant.longest) grant.longest = ttl;
    calls.sendRenewal(
      { names, ticket, ttl },
      (answer) => {
        if (contender.grant !== grant || grant.holder) return;
        if (answer.status !== 'renewed') return contender.disowned(grant);
        // Its lease had ended: others may have had the name before a late copy of the first request took it again.
        if (grant.remaining() <= 0) grant.skipTokensBelow(Infinity);
        calls.renewed(grant, sentAt, answer.remaining, ttl);
        this.renewedFor = grant.granted;
        contender.serve(grant);
      },
      (error) => this.failed(grant, error),
    );
  }

  /** Repeats the request after a pause, until the lease ends. */
  private failed(grant: Grant, error: LockBackendError): void {
    const { contender } = this;
    this.minting = false;
    if (contender.grant !== grant) return this.serveAnother();
    if (grant.holder) return;
    contender.error = error;
    if (grant.remaining() <= 0) {
      contender.backend.releaser.abandon(grant, grant.longest);
      return contender.disowned(grant);
    }
    if (contender.backend.calls.goesOnRefusing(error)) contender.refuseAll(error);
    contender.refuseOverdue();
    if (!contender.first) return contender.giveUp(grant);
    setTimeout(() => {
      if (contender.grant === grant && !grant.holder) contender.serve(grant);
    }, contender.backOff()).unref();
  }

  /** The request was made for an earlier grant; the present one may have waited for its end. */
  private serveAnother(): void {
    const { grant } = this.contender;
    if (grant && !grant.holder) this.contender.serve(grant);
  }
}

/** How often (ms) it asks the backend, for messages that were lost. */
const PERIOD = 500;
/** How often (ms) where there are no messages, so that a turn ends soon after another process has begun to wait. */
const PERIOD_WITHOUT_MESSAGES = 50;

/**
 * While callers wait behind a holder of their own process, asks the backend whether the process still owns the name and
 * whether another one waits for it: no message tells of a foreign `DEL`, and messages may be lost. Holders that await
 * nothing leave the event loop no time until the tokens are used up, so that it asks also between two holders.
 */
export class HolderCheck {
  private timer: NodeJS.Timeout | undefined = undefined;
  private readonly period: number;

  constructor(private readonly contender: Contender) {
    this.period = contender.contenders.queue.pace ? PERIOD_WITHOUT_MESSAGES : PERIOD;
  }

  start(): void {
    this.timer ??= this.arm();
    const { channel } = this.contender.contenders;
    if (!channel.tried) void channel.open().then(() => this.look());
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private arm(): NodeJS.Timeout {
    return setTimeout(() => {
      this.timer = undefined;
      if (this.look()) this.timer = this.arm();
    }, this.period).unref();
  }

  /** Answers `false` when no caller waits. */
  private look(): boolean {
    const { grant } = this.contender;
    if (!grant || !this.contender.first) return false;
    const { channel } = this.contender.contenders;
    if (!channel.isOpen) void channel.open();
    this.confirm(grant);
    return true;
  }

  private confirm(grant: Grant): void {
    const { contender } = this;
    const { names, ticket, holder } = grant;
    const sentAt = currentInstant();
    const { calls } = contender.backend;
    const ttl = holder?.options.renewal ? holder.options.ttl : 1;
    calls.sendRenewal(
      { names, ticket, ttl },
      (answer) => {
        if (contender.grant !== grant) return;
        contender.succeeded();
        if (answer.status !== 'renewed') return grant.ending ? undefined : contender.disowned(grant);
        calls.renewed(grant, sentAt, answer.remaining, ttl);
        if (answer.waiting) contender.wantedElsewhere(ticket);
      },
      (error) => {
        if (contender.grant === grant) contender.error = error;
      },
    );
  }
}
