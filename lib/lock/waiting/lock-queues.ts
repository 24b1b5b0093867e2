import type { LockQueue, Pending, QueueMessage, RenewAnswer, TokenRange } from '../../contracts/lock-backend.js';
import { acquireLease, grantedTooLate } from './polling.js';
import type { Ticketed } from '../backend/backend-calls.js';
import type { Lease } from '../lease/lease.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { Releaser } from '../lease/releaser.js';
import type { WaitBudget } from './wait-budget.js';
import type { Watchdog } from '../lease/watchdog.js';
import { Caller } from './caller.js';
import { Contender } from './contender.js';

/** The waiting of one process at a backend that keeps a queue: one contender for each name that anybody here wants. */
export class LockQueues {
  private readonly contenders = new Map<string, Contender>();
  /** Those who ask for one caller only, by their ticket. */
  private readonly singles = new Map<string, Contender>();
  private opening: Promise<void> | undefined;
  private opened = false;

  constructor(
    readonly backend: LockQueue,
    private readonly named: NamedBackend,
    readonly prefix: string | undefined,
  ) {}

  /** Waits in the queue of this process; with `order: 'fifo'` every caller waits at the backend by itself. */
  join(
    name: string,
    options: ResolvedLockOptions,
    budget: WaitBudget,
    admit: (lease: Lease) => void,
    refuse: (error: unknown) => void,
  ): void {
    const present = options.order === 'fifo' ? undefined : this.contenders.get(name);
    if (present && !present.idle && !present.keeps && options.wait === 0) {
      if (present.holds) refuse(present.refusal(budget.waited()));
      else acquireLease(this.named, [name], options, budget).then(admit, refuse);
      return;
    }
    const contender = present ?? this.contender(name, options.order);
    contender.join(new Caller(options, budget, contender, this.named.calls.timeouts, admit, refuse));
  }

  take(name: string, options: ResolvedLockOptions, budget: WaitBudget): Promise<Lease> {
    return new Promise((resolve, reject) => {
      this.join(name, options, budget, resolve, reject);
    });
  }

  /** How many of those who wait at the backend are of this process. */
  queuedHere(name: string): number {
    let queued = 0;
    for (const contender of this.singles.values()) if (contender.name === name && contender.queued) queued += 1;
    return this.contenders.get(name)?.queued ? queued + 1 : queued;
  }

  /** Whether messages come, as far as is known: where they do not, heartbeats find out. */
  get listening(): boolean {
    return this.opened;
  }

  /** Opens the channel; resolves also when that takes too long. */
  listen(): Promise<void> {
    const listener = {
      prefix: this.prefix,
      process: this.named.instance,
      onMessage: (message: QueueMessage) => this.dispatch(message),
      onReconnect: () => {
        for (const contender of this.contenders.values()) contender.onReconnect();
        for (const contender of this.singles.values()) contender.onReconnect();
      },
    };
    this.opening ??= this.named.calls
      .bounded('acquire', [], this.backend.listen(listener))
      .catch(() => {})
      .then(() => {
        this.opened = true;
      });
    return this.opening;
  }

  ticketFor(contender: Contender): string {
    const ticket = this.named.nextTicket();
    if (contender.single) this.singles.set(ticket, contender);
    return ticket;
  }

  forget(ticket: string): void {
    if (this.singles.size > 0) this.singles.delete(ticket);
  }

  forgetIdle(contender: Contender): void {
    if (contender.idle && this.contenders.get(contender.name) === contender) this.contenders.delete(contender.name);
  }

  /** A ticket that is not wanted any more: leaves the queue, and passes on what it may own, for `lease` ms at most. */
  abandon(name: string, ticket: string, lease: number): void {
    this.named.releaser.abandon({ names: [name], ticket }, lease);
  }

  renew(request: Ticketed & { readonly ttl: number }): readonly [Promise<RenewAnswer>] {
    return this.named.calls.renew([request]) as [Promise<RenewAnswer>];
  }

  /** Reserves tokens from `leastToken` on for whoever comes next under this ticket; `null` when it is not the owner. */
  mint(name: string, ticket: string, leastToken: number, limit: number): Promise<TokenRange | null> {
    return this.named.calls.mint(this.backend, name, ticket, leastToken, limit);
  }

  get watchdog(): Watchdog {
    return this.named.watchdog;
  }

  get releaser(): Releaser {
    return this.named.releaser;
  }

  /** Milliseconds that a request may go unanswered. */
  get commandTimeout(): number {
    return this.named.calls.commandTimeout;
  }

  unanswered(name: string, waited: number): LockBackendError {
    return this.named.calls.unanswered('acquire', [name], waited);
  }

  tooLate(name: string, ttl: number): LockBackendError {
    return grantedTooLate(this.named, [name], ttl);
  }

  send<T>(
    operation: string,
    names: readonly string[],
    call: Pending<T>,
    answered: (answer: T) => void,
    failed: (error: LockBackendError) => void,
    limit?: number,
  ): void {
    this.named.calls.send(operation, names, call, answered, failed, limit);
  }

  private contender(name: string, order: ResolvedLockOptions['order']): Contender {
    const contender = new Contender(this, name, order === 'fifo');
    if (order !== 'fifo') this.contenders.set(name, contender);
    return contender;
  }

  private dispatch(message: QueueMessage): void {
    if (message.kind === 'revoked') return this.watchdog.revoke(message.ticket);
    const { ticket, name } = message;
    const contender = this.singles.get(ticket) ?? this.contenders.get(name);
    if (message.kind === 'ends') contender?.leaseEnds(ticket, message.remaining);
    else if (message.kind === 'wanted') contender?.wantedElsewhere(ticket);
    else if (contender?.knows(ticket)) contender.onGrant(message);
    else this.abandon(name, ticket, message.claim);
  }
}
