import type { Grant } from '../lease/grant.js';
import { currentInstant } from '../../timing/instant.js';
import type { Contention } from './contention.js';

/** How often (ms) it asks the backend, for messages that were lost. */
const PERIOD = 500;
/** How often (ms) where there are no messages, so that a turn ends soon after another process has begun to wait. */
const PERIOD_WITHOUT_MESSAGES = 50;

/** The turn whose grant is checked. */
export interface CheckedTurn {
  readonly grant: Grant | undefined;
  wantedElsewhere(ticket: string): void;
  /** The backend has answered that the ticket of the grant does not own the name. */
  disowned(grant: Grant): void;
}

/**
 * While callers wait behind a holder of their own process, asks the backend whether the process still owns the name and
 * whether another one waits for it: no message tells of a foreign `DEL`, and messages may be lost. Holders that await
 * nothing leave the event loop no time until the tokens are used up, so that it asks also between two holders.
 */
export class HolderCheck {
  private timer: NodeJS.Timeout | undefined;
  private readonly period: number;

  constructor(
    private readonly turn: CheckedTurn,
    private readonly contention: Contention,
  ) {
    this.period = contention.place.queue.pace ? PERIOD_WITHOUT_MESSAGES : PERIOD;
  }

  start(): void {
    this.timer ??= this.arm();
    const { channel } = this.contention.place;
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
    const { grant } = this.turn;
    if (!grant || !this.contention.callers.first) return false;
    const { channel } = this.contention.place;
    if (!channel.isOpen) void channel.open();
    this.confirm(grant);
    return true;
  }

  private confirm(grant: Grant): void {
    const { contention, turn } = this;
    const { names, ticket, holder } = grant;
    const sentAt = currentInstant();
    contention.place.backend.calls.sendRenewal(
      { names, ticket, ttl: holder?.options.renewal ? holder.options.ttl : 1 },
      (answer) => {
        if (turn.grant !== grant) return;
        contention.error = undefined;
        if (answer.status !== 'renewed') return turn.disowned(grant);
        grant.renewed(sentAt, answer.remaining);
        if (answer.waiting) turn.wantedElsewhere(ticket);
      },
      (error) => {
        if (turn.grant === grant) contention.error = error;
      },
    );
  }
}
