import type { Granted, NameRequest } from '../../contracts/lock-backend.js';
import {
  decode,
  get,
  hasNone,
  hasValue,
  haveOnly,
  isAbsent,
  isSince,
  oldest,
  put,
  remove,
  touch,
  type Compare,
  type KeyValue,
  type Operation,
  type Txn,
} from './client/etcd-messages.js';
import { ContendedNames } from './contended-names.js';
import { processOf, type EtcdKeys } from './etcd-keys.js';
import type { EtcdTransactions, Outcome } from './client/etcd-transactions.js';
import { mailOf, type Mail } from './queue/etcd-mail.js';
import type { EtcdSessions } from './session/etcd-sessions.js';
import type { TokenOffset } from './token-offset.js';

/** A ticket in the queue of a name. */
export interface Waiter {
  readonly ticket: string;
  readonly key: string;
  /** Since which revision it waits. */
  readonly since: string;
  readonly lease: string;
}

/** Who owns a name, and who waits for it. */
export interface NameState {
  readonly owner: { readonly ticket: string; readonly lease: string; readonly revision: number } | undefined;
  readonly first: Waiter | undefined;
  /** How many wait, the first one included. */
  readonly waiting: number;
}

/** What a hand-over does beside giving the name to the waiter. */
export interface HandOverExtras {
  /** Who asks: its answer tells it, so that it gets no message. */
  readonly caller?: string;
  readonly also?: readonly Operation[];
  /** A message to the owner, who loses the name. */
  readonly mail?: { readonly to: string; readonly lease: string; readonly message: Mail };
}

/** The steps that all requests for a name consist of. */
export class EtcdNames {
  private readonly contended = new ContendedNames();

  constructor(
    readonly keys: EtcdKeys,
    readonly transactions: EtcdTransactions,
    readonly offset: TokenOffset,
    readonly sessions: EtcdSessions,
  ) {}

  /** What `stateIn` needs, from its first operation on; and the tickets of the first `waiters`. */
  reads(request: NameRequest, waiters = 1): readonly Operation[] {
    return [get(this.keys.lock(request)), oldest(this.keys.waiters(request), waiters), this.offset.read()];
  }

  /** `at`: the index of the first of the `reads`. */
  stateIn(outcome: Outcome, at = 0): NameState {
    this.offset.learn(outcome.first(at + 2));
    const lock = outcome.first(at);
    const first = outcome.first(at + 1);
    return {
      owner: lock && { ticket: decode(lock.value), lease: lock.lease ?? '0', revision: Number(lock.mod_revision) },
      first: first && {
        ticket: this.waiterIn(first),
        key: decode(first.key),
        since: first.create_revision,
        lease: first.lease ?? '0',
      },
      waiting: outcome.count(at + 1),
    };
  }

  /** The tickets that wait, in their order, as far as `reads` asked for them. */
  queueIn(outcome: Outcome): readonly string[] {
    return outcome.all(1).map((kv) => this.waiterIn(kv));
  }

  /** Nobody owns the name or waits for it. */
  isFree(request: NameRequest): readonly Compare[] {
    return [hasNone(this.keys.all(request)), this.offset.guard()];
  }

  /** The ticket owns the name, and nobody waits for it: the key of a waiter would have another value. */
  isUnwanted(request: NameRequest, ticket: string): Compare {
    return haveOnly(this.keys.all(request), ticket);
  }

  /**
   * Carries out `success` if all of `compare` hold, together with other requests; else `failure`, to which the `reads`
   * are appended.
   */
  async attempt(request: NameRequest, { compare, success, failure }: Txn): Promise<Outcome> {
    const lock = this.keys.lock(request);
    let resent = false;
    if (!this.contended.has(lock)) {
      const outcome = await this.transactions.runTogether(lock, { compare, success, failure: [] });
      if (outcome.succeeded) return outcome;
      this.contended.add(lock);
      ({ resent } = outcome);
    }
    const reads = this.reads(request);
    const outcome = await this.transactions.runTogether(lock, { compare, success, failure: [...failure, ...reads] });
    if (outcome.succeeded) this.contended.delete(lock);
    return resent ? outcome.asResent() : outcome;
  }

  give(request: NameRequest, ticket: string, lease: string): Operation {
    return put(this.keys.lock(request), ticket, lease);
  }

  /** The answer for a ticket of this process that owns the name since `revision`, by this lease. */
  granted(revision: number, waiting: number, lease: string): Granted {
    return {
      status: 'granted',
      tokens: this.offset.tokensOf(revision),
      remaining: this.sessions.remaining(lease),
      waiting,
    };
  }

  /** Mints tokens for the owner, and takes its ticket out of the queue. Without success, with the `reads`. */
  async mint(request: NameRequest, ticket: string): Promise<Outcome> {
    const lock = this.keys.lock(request);
    return this.transactions.run({
      compare: [hasValue(lock, ticket), this.offset.guard()],
      success: [touch(lock), remove(this.keys.waiters(request) + ticket), oldest(this.keys.waiters(request))],
      failure: this.reads(request),
    });
  }

  /**
   * Gives the name to its first waiter, on the lease of that one, if `state` is the present one: `owner` has it, or
   * nobody. Without success, with the `reads`.
   */
  handOver(
    request: NameRequest,
    { owner, first: to, waiting }: NameState & { readonly first: Waiter },
    { caller, also = [], mail }: HandOverExtras = {},
  ): Promise<Outcome> {
    const lock = this.keys.lock(request);
    const behind = waiting - 1 + also.length;
    const grant: Mail = {
      kind: 'grant',
      ticket: to.ticket,
      name: request.name,
      waiting: behind,
      offset: this.offset.value,
    };
    const letters = [
      ...(to.ticket === caller ? [] : [{ to: to.ticket, lease: to.lease, message: grant }]),
      ...(mail ? [mail] : []),
    ];
    return this.transactions.run({
      compare: [owner ? hasValue(lock, owner.ticket) : isAbsent(lock), isSince(to.key, to.since), this.offset.guard()],
      success: [this.give(request, to.ticket, to.lease), remove(to.key), ...also, ...this.post(request, letters)],
      failure: this.reads(request),
    });
  }

  /** Tells the owner that others wait. A message that is lost is sent again with the next heartbeat. */
  async want(request: NameRequest, { ticket, lease }: NonNullable<NameState['owner']>): Promise<void> {
    const message: Mail = { kind: 'wanted', ticket, name: request.name };
    try {
      await this.transactions.run({
        compare: [hasValue(this.keys.lock(request), ticket)],
        success: this.post(request, [{ to: ticket, lease, message }]),
        failure: [],
      });
    } catch {
      // The next heartbeat repeats it.
    }
  }

  /** Puts messages into the mailboxes of the tickets' processes: never without a lease, or they would stay for ever. */
  post(request: NameRequest, letters: readonly NonNullable<HandOverExtras['mail']>[]): readonly Operation[] {
    const boxes = new Map<string, { lease: string; messages: Mail[] }>();
    for (const { to, lease, message } of letters) {
      if (lease === '0') continue;
      const key = this.keys.mailbox(request, processOf(to));
      const box = boxes.get(key);
      if (box) box.messages.push(message);
      else boxes.set(key, { lease, messages: [message] });
    }
    return [...boxes].map(([key, { lease, messages }]) => put(key, mailOf(messages), lease));
  }

  private waiterIn({ key }: KeyValue): string {
    return this.keys.nameIn(decode(key))?.waiter ?? '';
  }
}
