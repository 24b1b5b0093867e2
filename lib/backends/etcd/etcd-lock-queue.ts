import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  QueueAnswer,
  QueueListener,
  RequeueRequest,
  TicketRequest,
  QueueMessage,
} from '../../contracts/lock-backend.js';
import type { EtcdClient } from './etcd-client.js';
import { leaseIsGone } from './etcd-endpoint.js';
import type { EtcdNames, NameState, Waiter } from './etcd-names.js';
import type { EtcdSessions } from './etcd-session.js';
import { get, put, type Outcome, type KeyValue, decode } from './etcd-transactions.js';
import { EtcdWatch } from './etcd-watch.js';
import type { TokenOffset } from './token-offset.js';

/** How many places at the head of a queue are near: their turn may come before their next heartbeat. */
const NEAR = 8;

type Gone = { readonly status: 'gone' };
type NotOwner = { readonly status: 'not-owner'; readonly resent: boolean };

/** The queue of the etcd backend: one key for each waiter of a name, in the order of their revisions. */
export class EtcdLockQueue implements LockQueue {
  private readonly mailboxes = new Map<string, { readonly mailbox: EtcdWatch; readonly opened: Promise<void> }>();

  constructor(
    private readonly client: EtcdClient,
    private readonly names: EtcdNames,
    private readonly onGap: () => void,
  ) {}

  async listen(listener: QueueListener): Promise<void> {
    const key = this.names.keys.mailbox(listener, listener.process);
    const present = this.mailboxes.get(key);
    if (present) return present.opened;
    const { offset, sessions } = this.names;
    const mailbox = new EtcdWatch(this.client, key, {
      onPut: (kv) => {
        for (const message of messagesIn(kv, offset, sessions)) {
          if (message.kind === 'grant') sessions.tickets.add(message.ticket);
          listener.onMessage(message);
        }
      },
      onReconnect: () => listener.onReconnect(),
      onGap: this.onGap,
    });
    const opened = mailbox.open();
    this.mailboxes.set(key, { mailbox, opened });
    try {
      await opened;
    } catch (error) {
      mailbox.close();
      this.mailboxes.delete(key);
      throw error;
    }
  }

  unlisten(listener: Pick<QueueListener, 'prefix' | 'process'>): void {
    const key = this.names.keys.mailbox(listener, listener.process);
    this.mailboxes.get(key)?.mailbox.close();
    this.mailboxes.delete(key);
  }

  enqueue(request: EnqueueRequest): Promise<QueueAnswer> {
    return this.names.sessions.ask(request.ticket, (begin) => this.ask(request, begin));
  }

  async beat(request: BeatRequest): Promise<QueueAnswer | Gone> {
    const { names } = this;
    const { ticket } = request;
    const reads = names.reads(request);
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await names.offset.tryAgain(tries);
      const outcome = await names.transactions.read([...reads, get(names.keys.waiters(request) + ticket)]);
      const state = names.stateIn(outcome);
      if (state.owner?.ticket !== ticket && !outcome.first(reads.length)) {
        names.sessions.tickets.delete(ticket);
        return { status: 'gone' };
      }
      const answer = await this.answerIn(request, state, outcome);
      if (answer) return answer;
    }
  }

  requeue(request: RequeueRequest): Promise<QueueAnswer | NotOwner> {
    const { sessions } = this.names;
    const requeued = () => sessions.ask(request.again, (begin) => this.requeueAs(request, begin));
    return sessions.end(request.ticket, requeued);
  }

  close(): void {
    for (const { mailbox } of this.mailboxes.values()) mailbox.close();
    this.mailboxes.clear();
  }

  private async ask(request: EnqueueRequest, begin: () => void): Promise<QueueAnswer> {
    const { names } = this;
    const { ticket, claim } = request;
    const key = names.keys.waiters(request) + ticket;
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await names.offset.tryAgain(tries);
      const session = await names.sessions.current();
      begin();
      const queued = claim === undefined ? [] : [put(key, '', session.lease)];
      let outcome: Outcome;
      try {
        outcome = await names.attempt(request, {
          compare: names.isFree(request),
          success: [names.give(request, ticket, session.lease)],
          failure: queued,
        });
      } catch (error) {
        if (!leaseIsGone(error)) throw error;
        session.end(error);
        continue;
      }
      if (outcome.succeeded) return names.granted(outcome.revision, 0, session.lease);
      const answer = await this.answerIn(request, names.stateIn(outcome, queued.length), outcome);
      if (!answer) continue;
      if (answer.status === 'busy' && claim === undefined) names.sessions.tickets.delete(ticket);
      return answer;
    }
  }

  private async requeueAs(request: RequeueRequest, begin: () => void): Promise<QueueAnswer | NotOwner> {
    const { names } = this;
    const { ticket, again } = request;
    const session = await names.sessions.current();
    begin();
    const also = [put(names.keys.waiters(request) + again, '', session.lease)];
    let resent = false;
    let state: NameState | undefined;
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await names.offset.tryAgain(tries);
      const first = state?.first;
      const outcome: Outcome =
        state && first
          ? await names.handOver(request, { ...state, first }, { also })
          : await names.transactions.run({
              compare: [names.isUnwanted(request, ticket), names.offset.guard()],
              success: [names.give(request, again, session.lease)],
              failure: names.reads(request),
            });
      resent ||= outcome.resent;
      if (outcome.succeeded) {
        if (!first) return names.granted(outcome.revision, 0, session.lease);
        return this.busy(outcome.revision, first.ticket, state?.waiting === 1);
      }
      state = names.stateIn(outcome);
      if (state.owner?.ticket === ticket) continue;
      // An earlier send may have queued it, and a message may have granted it since.
      if (!resent) names.sessions.tickets.delete(again);
      return { status: 'not-owner', resent };
    }
  }

  /** The answer for a ticket that has asked; `undefined` when it must ask again. Passes on a name without an owner. */
  private async answerIn(
    request: TicketRequest,
    state: NameState,
    { revision }: Outcome,
  ): Promise<QueueAnswer | undefined> {
    const { ticket } = request;
    const { owner, first, waiting } = state;
    if (owner?.ticket === ticket) return this.grantAgain(request, owner.lease);
    if (!owner) return first && this.passOn(request, { ...state, first });
    const isFirst = first?.ticket === ticket;
    if (isFirst) void this.names.want(request, owner);
    return this.busy(revision, owner.ticket, isFirst, waiting);
  }

  private async passOn(
    request: TicketRequest,
    state: NameState & { readonly first: Waiter },
  ): Promise<QueueAnswer | undefined> {
    const { ticket, lease } = state.first;
    const outcome = await this.names.handOver(request, state, { caller: request.ticket });
    if (!outcome.succeeded) {
      this.names.stateIn(outcome);
      return undefined;
    }
    if (ticket === request.ticket) return this.names.granted(outcome.revision, outcome.count(0) - 1, lease);
    return this.busy(outcome.revision, ticket, false);
  }

  private async grantAgain(request: TicketRequest, lease: string): Promise<QueueAnswer | undefined> {
    const outcome = await this.names.mint(request, request.ticket);
    if (outcome.succeeded) return this.names.granted(outcome.revision, outcome.count(2), lease);
    this.names.stateIn(outcome);
    return undefined;
  }

  private busy(revision: number, owner: string, first: boolean, waiting = 0): QueueAnswer {
    const unissued = this.names.offset.leastAfter(revision);
    // The owner's lease is renewed for as long as its process lives.
    return { status: 'busy', owner, remaining: Infinity, unissued, first, far: !first && waiting > NEAR };
  }
}

/**
 * A message in a mailbox, which has a list of them as JSON. The tokens of a grant are those of the revision at which it
 * was written.
 */
export type Mail =
  | {
      readonly kind: 'grant';
      readonly ticket: string;
      readonly name: string;
      readonly waiting: number;
      readonly offset: number;
    }
  | { readonly kind: 'wanted'; readonly ticket: string; readonly name: string }
  | { readonly kind: 'revoked'; readonly ticket: string };

/** The messages in a mailbox that was just written, with the lease that the ticket waited with. */
function messagesIn(
  { value, lease, mod_revision: revision }: KeyValue,
  offset: TokenOffset,
  sessions: EtcdSessions,
): readonly QueueMessage[] {
  const mail = JSON.parse(decode(value)) as readonly Mail[];
  return mail.map((message) => {
    if (message.kind !== 'grant') return message;
    const { kind, ticket, name, waiting } = message;
    const tokens = offset.tokensOf(Number(revision), message.offset);
    return { kind, ticket, name, waiting, tokens, claim: sessions.remaining(lease) };
  });
}
