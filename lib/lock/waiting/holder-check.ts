import type { Grant, GrantHolder } from '../lease/grant.js';
import { currentInstant } from '../lease/lease-clock.js';
import type { Contention } from './contention.js';

/** How often (ms) it asks the backend. */
const PERIOD = 500;

/** The turn whose holder is checked. */
export interface CheckedTurn {
  readonly grant: Grant | undefined;
  wantedElsewhere(ticket: string): void;
}

/**
 * While callers wait behind a holder of their own process, asks the backend whether the holder still owns the name and
 * whether another process waits for it: no message tells of a foreign `DEL`, and messages may be lost.
 */
export class HolderCheck {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly turn: CheckedTurn,
    private readonly contention: Contention,
  ) {}

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
    }, PERIOD).unref();
  }

  /** Answers `false` when no caller waits. */
  private look(): boolean {
    const { grant } = this.turn;
    if (!grant || !this.contention.callers.first) return false;
    const { channel } = this.contention.place;
    if (!channel.isOpen) void channel.open();
    if (grant.holder) this.confirm(grant, grant.holder);
    return true;
  }

  private confirm(grant: Grant, { options }: GrantHolder): void {
    const { contention, turn } = this;
    const { names, ticket } = grant;
    const sentAt = currentInstant();
    contention.place.backend.calls.sendRenewal(
      { names, ticket, ttl: options.renewal ? options.ttl : 1 },
      (answer) => {
        if (turn.grant !== grant) return;
        contention.error = undefined;
        if (answer.status !== 'renewed') return grant.lose('taken');
        grant.renewed(sentAt, answer.remaining);
        if (answer.waiting) turn.wantedElsewhere(ticket);
      },
      (error) => {
        if (turn.grant === grant) contention.error = error;
      },
    );
  }
}
