import { currentInstant } from '../lease/lease-clock.js';
import type { Grant } from '../lease/grant.js';
import type { Lease } from '../lease/lease.js';
import type { Contender } from './contender.js';
import type { LockQueues } from './lock-queues.js';
import type { Turn } from './turn.js';

/** How often (ms) the backend is asked who owns the name. */
const PERIOD = 500;

/**
 * Asks for callers that wait behind a holder of their own process: others may want the lock, or it may have been
 * deleted behind the holder's back.
 */
export class HolderCheck {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly turn: Turn,
    private readonly contender: Contender,
    private readonly queues: LockQueues,
  ) {}

  start(): void {
    this.timer ??= this.arm();
    if (!this.queues.listening) void this.queues.listen().then(() => this.look());
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

  /** Answers `false` when there is nobody to ask for. */
  private look(): boolean {
    const { grant } = this.turn;
    if (!grant || !this.contender.callers.first) return false;
    if (grant.holder) this.confirm(grant, grant.holder);
    return true;
  }

  private confirm(grant: Grant, { options }: Lease): void {
    const sentAt = currentInstant();
    this.queues.send(
      'renew',
      grant.names,
      this.queues.renew({ names: grant.names, ticket: grant.ticket, ttl: options.renewal ? options.ttl : 1 })[0],
      (answer) => {
        if (this.turn.grant !== grant) return;
        this.contender.error = undefined;
        if (answer.status !== 'renewed') return grant.lose('taken');
        grant.renewed(sentAt, answer.remaining);
        if (answer.waiting) this.turn.wantedElsewhere(grant.ticket);
      },
      (error) => {
        if (this.turn.grant === grant) this.contender.error = error;
      },
    );
  }
}
