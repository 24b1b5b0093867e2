import type { QueueMessage } from '../../contracts/lock-backend.js';
import type { QueueCalls } from '../backend/backend-calls.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { Lease } from '../lease/lease.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { Caller } from './caller.js';
import { Contender, type ContenderIndex } from './contender.js';
import { acquireLease } from './polling.js';
import { QueueChannel } from './queue-channel.js';
import type { WaitBudget } from './wait-budget.js';

/**
 * The contenders of one process at a backend that keeps a queue: one for each name that a caller wants, and one for
 * each caller with `order: 'fifo'`, who waits at the backend by itself.
 */
export class Contenders implements ContenderIndex {
  readonly channel: QueueChannel;
  private readonly byName = new Map<string, Contender>();
  /** Those of `order: 'fifo'`. */
  private readonly byTicket = new Map<string, Contender>();

  constructor(
    readonly backend: NamedBackend,
    readonly queue: QueueCalls,
  ) {
    this.channel = new QueueChannel(queue, {
      process: backend.instance,
      onMessage: (message) => this.dispatch(message),
      onReconnect: () => {
        for (const contender of this.byName.values()) contender.onReconnect();
        for (const contender of this.byTicket.values()) contender.onReconnect();
      },
    });
  }

  /** How many there are. */
  get size(): number {
    return this.byName.size + this.byTicket.size;
  }

  join(
    name: string,
    options: ResolvedLockOptions,
    budget: WaitBudget,
    admit: (lease: Lease) => void,
    refuse: (error: unknown) => void,
  ): void {
    const single = options.order === 'fifo';
    let contender = single ? undefined : this.byName.get(name);
    if (contender && options.wait === 0 && !contender.idle && !contender.ownsUnused) {
      if (contender.holds) refuse(contender.refusal(budget.waited()));
      else acquireLease(this.backend, [name], options, budget).then(admit, refuse);
      return;
    }
    if (!contender) {
      contender = new Contender(this, name, single);
      if (!single) this.byName.set(name, contender);
    }
    contender.join(new Caller(options, budget, contender, this.backend.calls.timeouts, admit, refuse));
  }

  take(name: string, options: ResolvedLockOptions, budget: WaitBudget): Promise<Lease> {
    return new Promise((resolve, reject) => {
      this.join(name, options, budget, resolve, reject);
    });
  }

  /** How many tickets of this process wait for the name in the queue at the backend. */
  queuedHere(name: string): number {
    let queued = 0;
    for (const contender of this.byTicket.values()) if (contender.name === name && contender.queued) queued += 1;
    return this.byName.get(name)?.queued ? queued + 1 : queued;
  }

  addTicket(ticket: string, contender: Contender): void {
    this.byTicket.set(ticket, contender);
  }

  removeTicket(ticket: string): void {
    this.byTicket.delete(ticket);
  }

  remove(contender: Contender): void {
    if (this.byName.get(contender.name) === contender) this.byName.delete(contender.name);
  }

  private dispatch(message: QueueMessage): void {
    const { watchdog, releaser } = this.backend;
    if (message.kind === 'revoked') return watchdog.revoke(message.ticket);
    const { ticket, name } = message;
    const contender = this.byTicket.get(ticket) ?? this.byName.get(name);
    if (message.kind === 'ends') contender?.onLeaseEnds(ticket, message.remaining);
    else if (message.kind === 'wanted') contender?.wantedElsewhere(ticket);
    else if (contender?.knows(ticket)) contender.onGrant(message);
    else releaser.abandon({ names: [name], ticket }, message.claim);
  }
}
