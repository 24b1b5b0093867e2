import type { NameRequest, Pending, ReleaseAnswer, TicketRequest } from '../../contracts/lock-backend.js';
import type { EtcdNames } from './etcd-names.js';
import { remove } from './etcd-transactions.js';

/** How names become free, or pass to their first waiter. */
export class EtcdReleases {
  constructor(private readonly names: EtcdNames) {}

  release(request: TicketRequest): Pending<ReleaseAnswer> {
    return this.names.sessions.end(request.ticket, () => this.releaseOne(request));
  }

  /** Frees the name of the ticket, or gives it to its first waiter; takes a ticket that waits out of the queue. */
  async releaseOne(request: TicketRequest): Promise<ReleaseAnswer> {
    const { names } = this;
    const { ticket } = request;
    const lock = names.keys.lock(request);
    const waiters = names.keys.waiters(request);
    let outcome = await names.attempt(request, {
      compare: [names.isUnwanted(request, ticket)],
      success: [remove(lock)],
      failure: [remove(waiters + ticket)],
    });
    let { resent } = outcome;
    for (let tries = 0; !outcome.succeeded; tries += 1) {
      const state = names.stateIn(outcome, tries === 0 ? 1 : 0);
      if (tries > 0) await names.offset.tryAgain(tries);
      const { owner, first } = state;
      if (owner && owner.ticket !== ticket) return { status: 'taken', resent };
      if (!owner && !first) return { status: 'gone', resent };
      outcome = first
        ? await names.handOver(request, { ...state, first })
        : await names.transactions.run({
            compare: [names.isUnwanted(request, ticket)],
            success: [remove(lock)],
            failure: names.reads(request),
          });
      resent ||= outcome.resent;
      if (outcome.succeeded && !owner) return { status: 'gone', resent };
    }
    return { status: 'released', resent };
  }

  /** Frees the name of any owner, or gives it to its first waiter. Returns the owner. */
  async force(request: NameRequest): Promise<string | null> {
    const { names } = this;
    const lock = names.keys.lock(request);
    let outcome = await names.transactions.read(names.reads(request));
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await names.offset.tryAgain(tries);
      const state = names.stateIn(outcome);
      const { owner, first } = state;
      if (!owner) return null;
      const mail = {
        to: owner.ticket,
        lease: owner.lease,
        message: { kind: 'revoked' as const, ticket: owner.ticket },
      };
      outcome = first
        ? await names.handOver(request, { ...state, first }, { mail })
        : await names.transactions.run({
            compare: [names.isUnwanted(request, owner.ticket)],
            success: [remove(lock), ...names.post(request, [mail])],
            failure: names.reads(request),
          });
      if (outcome.succeeded) return owner.ticket;
    }
  }
}
