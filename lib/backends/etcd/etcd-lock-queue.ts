import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  ModuleContext,
  QueueAnswer,
  RequeueRequest,
  QueueMessage,
} from '../../contracts/lock-backend.js';
import type { EtcdClient } from './etcd-client.js';
import { leaseIsGone } from './etcd-endpoint.js';
import type { EtcdKeys, EtcdLock, EtcdNames, NameState, Waiter } from './etcd-names.js';
import type { EtcdSessions } from './etcd-session.js';
import { get, put, type Outcome, type KeyValue, decode } from './etcd-transactions.js';
import { EtcdWatch } from './etcd-watch.js';
import type { TokenOffset } from './token-offset.js';

/** How many places at the head of a queue are near: their turn may come before their next heartbeat. */
const NEAR = 8;

type Gone = { readonly status: 'gone' };
type NotOwner = { readonly status: 'not-owner'; readonly resent: boolean };

/** The queue of a module at etcd: one key for each waiter of a name, in the order of their revisions. */
export class EtcdLockQueue implements LockQueue {
  private mailbox: { readonly watch: EtcdWatch; readonly opened: Promise<void> } | undefined;

  constructor(
    private readonly client: EtcdClient,
    private readonly names: EtcdNames,
    private readonly keys: EtcdKeys,
    private readonly module: ModuleContext,
    private readonly onGap: () => void,
  ) {}

  async listen(): Promise<void> {
    if (this.mailbox) return this.mailbox.opened;
    const { module } = this;
    const { offset, sessions } = this.names;
    const watch = new EtcdWatch(this.client, this.keys.mailbox(module.process), {
      onPut: (kv) => {
        for (const message of messagesIn(kv, offset, sessions)) {
          if (message.kind === 'grant') sessions.tickets.add(message.ticket);
          module.message(message);
        }
      },
      onEnd: module.interrupted,
      onReconnect: module.reconnected,
      onGap: this.onGap,
    });
    const opened = watch.open();
    this.mailbox = { watch, opened };
    try {
      await opened;
    } catch (error) {
      this.close();
      throw error;
    }
  }

  enqueue(request: EnqueueRequest): Promise<QueueAnswer> {
    const { name, ticket, claim } = request;
    return this.names.sessions.ask(ticket, (begin) => this.ask(this.keys.lock(name), ticket, claim, begin));
  }

  async beat({ name, ticket }: BeatRequest): Promise<QueueAnswer | Gone> {
    const { names } = this;
    const lock = this.keys.lock(name);
    const reads = names.reads(lock);
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await names.offset.tryAgain(tries);
      const outcome = await names.transactions.read([...reads, get(lock.waiters + ticket)]);
      const state = names.stateIn(outcome);
      if (state.owner?.ticket !== ticket && !outcome.first(reads.length)) {
        names.sessions.tickets.delete(ticket);
        return { status: 'gone' };
      }
      const answer = await this.answerIn(lock, ticket, state, outcome);
      if (answer) return answer;
    }
  }

  requeue(request: RequeueRequest): Promise<QueueAnswer | NotOwner> {
    const { sessions } = this.names;
    const requeued = () => sessions.ask(request.again, (begin) => this.requeueAs(request, begin));
    return sessions.end(request.ticket, requeued);
  }

  close(): void {
    this.mailbox?.watch.close();
    this.mailbox = undefined;
  }

  private async ask(
    lock: EtcdLock,
    ticket: string,
    claim: number | undefined,
    begin: () => void,
  ): Promise<QueueAnswer> {
    const { names } = this;
    const key = lock.waiters + ticket;
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await names.offset.tryAgain(tries);
      const session = await names.sessions.current();
      begin();
      const queued = claim === undefined ? [] : [put(key, '', session.lease)];
      let outcome: Outcome;
      try {
        outcome = await names.attempt(lock, {
          compare: names.isFree(lock),
          success: [names.give(lock, ticket, session.lease)],
          failure: queued,
        });
      } catch (error) {
        if (!leaseIsGone(error)) throw error;
        session.end(error);
        continue;
      }
      if (outcome.succeeded) return names.granted(outcome.revision, 0, session.lease);
      const answer = await this.answerIn(lock, ticket, names.stateIn(outcome, queued.length), outcome);
      if (!answer) continue;
      if (answer.status === 'busy' && claim === undefined) names.sessions.tickets.delete(ticket);
      return answer;
    }
  }

  private async requeueAs(request: RequeueRequest, begin: () => void): Promise<QueueAnswer | NotOwner> {
    const { names } = this;
    const { ticket, again } = request;
    const lock = this.keys.lock(request.name);
    const session = await names.sessions.current();
    begin();
    const also = [put(lock.waiters + again, '', session.lease)];
    let resent = false;
    let state: NameState | undefined;
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await names.offset.tryAgain(tries);
      const first = state?.first;
      const outcome: Outcome =
        state && first
          ? await names.handOver(lock, { ...state, first }, { also })
          : await names.transactions.run({
              compare: [names.isUnwanted(lock, ticket), names.offset.guard()],
              success: [names.give(lock, again, session.lease)],
              failure: names.reads(lock),
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
    lock: EtcdLock,
    ticket: string,
    state: NameState,
    { revision }: Outcome,
  ): Promise<QueueAnswer | undefined> {
    const { owner, first, waiting } = state;
    if (owner?.ticket === ticket) return this.grantAgain(lock, ticket, owner.lease);
    if (!owner) return first && this.passOn(lock, ticket, { ...state, first });
    const isFirst = first?.ticket === ticket;
    if (isFirst) void this.names.want(lock, owner);
    return this.busy(revision, owner.ticket, isFirst, waiting);
  }

  private async passOn(
    lock: EtcdLock,
    caller: string,
    state: NameState & { readonly first: Waiter },
  ): Promise<QueueAnswer | undefined> {
    const { ticket, lease } = state.first;
    const outcome = await this.names.handOver(lock, state, { caller });
    if (!outcome.succeeded) {
      this.names.stateIn(outcome);
      return undefined;
    }
    if (ticket === caller) return this.names.granted(outcome.revision, outcome.count(0) - 1, lease);
    return this.busy(outcome.revision, ticket, false);
  }

  private async grantAgain(lock: EtcdLock, ticket: string, lease: string): Promise<QueueAnswer | undefined> {
    const outcome = await this.names.mint(lock, ticket);
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
