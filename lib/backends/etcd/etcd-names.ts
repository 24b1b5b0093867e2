import type { Granted, NameRequest } from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import type { Mail } from './etcd-lock-queue.js';
import type { EtcdSessions } from './etcd-session.js';
import {
  count,
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
  type EtcdTransactions,
  type Outcome,
} from './etcd-transactions.js';
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
interface HandOverExtras {
  /** Who asks: its answer tells it, so that it gets no message. */
  readonly caller?: string;
  readonly also?: readonly Operation[];
  /** A message to the owner, who loses the name. */
  readonly mail?: Letter;
}

/** A message to the process of the ticket `to`, on the lease of that ticket. */
interface Letter {
  readonly to: string;
  readonly lease: string;
  readonly message: Mail;
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
   * nobody. The new owner also learns of those who have begun to wait since then: they did not tell it, because they
   * were not the first. Without success, with the `reads`.
   */
  async handOver(
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
    const outcome = await this.transactions.run({
      compare: [owner ? hasValue(lock, owner.ticket) : isAbsent(lock), isSince(to.key, to.since), this.offset.guard()],
      success: [
        count(this.keys.waiters(request)),
        this.give(request, to.ticket, to.lease),
        remove(to.key),
        ...also,
        ...this.post(request, letters),
      ],
      failure: this.reads(request),
    });
    if (outcome.succeeded && outcome.count(0) > waiting && to.ticket !== caller) void this.want(request, to);
    return outcome;
  }

  /** Tells the owner that others wait. A message that is lost is sent again with the next heartbeat. */
  async want(request: NameRequest, { ticket, lease }: Pick<Waiter, 'ticket' | 'lease'>): Promise<void> {
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
  post(request: NameRequest, letters: readonly Letter[]): readonly Operation[] {
    const boxes = new Map<string, { lease: string; messages: Mail[] }>();
    for (const { to, lease, message } of letters) {
      if (lease === '0') continue;
      const key = this.keys.mailbox(request, processOf(to));
      const box = boxes.get(key);
      if (box) box.messages.push(message);
      else boxes.set(key, { lease, messages: [message] });
    }
    return [...boxes].map(([key, { lease, messages }]) => put(key, JSON.stringify(messages), lease));
  }

  private waiterIn({ key }: KeyValue): string {
    return this.keys.nameIn(decode(key))?.waiter ?? '';
  }
}

type Prefixed = Pick<NameRequest, 'prefix'>;

/**
 * The keys of all locks. Each has one segment for the module's prefix, which may be empty, and one for the name or the
 * process: a `/` in them is encoded, so that no name is the beginning of another one's keys.
 */
export class EtcdKeys {
  /** What is added to every token. */
  readonly offset: string;

  constructor(private readonly root: string) {
    this.offset = `${root}first-token`;
  }

  /** What the keys of the owner and of all waiters of a name begin with, and no others: one condition covers them. */
  all({ prefix, name }: NameRequest): string {
    return `${this.key('lock', prefix, name)}/`;
  }

  /** Its value is the ticket that owns the lock. */
  lock(request: NameRequest): string {
    return `${this.all(request)}owner`;
  }

  /** What the keys of all waiters of a name begin with. The ticket follows. They have no value, unlike the owner's. */
  waiters(request: NameRequest): string {
    return `${this.all(request)}wait/`;
  }

  /** Where a process gets its messages. */
  mailbox({ prefix }: Prefixed, process: string): string {
    return this.key('mail', prefix, process);
  }

  /** Lives as long as the lease. */
  session(lease: string): string {
    return this.key('session', undefined, lease);
  }

  label({ prefix }: Prefixed, process: string): string {
    return this.key('label', prefix, process);
  }

  /** The request for the name of a lock, or of the waiter with the ticket; `undefined` for another key. */
  nameIn(key: string): (NameRequest & { readonly waiter: string | undefined }) | undefined {
    const [kind, prefix = '', name, role, ...ticket] = key.slice(this.root.length).split('/');
    if (!key.startsWith(this.root) || kind !== 'lock' || name === undefined) return undefined;
    const waiter = role === 'wait' ? ticket.join('/') : undefined;
    return { ...(prefix !== '' && { prefix: unescaped(prefix) }), name: unescaped(name), waiter };
  }

  private key(kind: string, prefix: string | undefined, name: string): string {
    return `${this.root}${kind}/${escaped(prefix ?? '')}/${escaped(name)}`;
  }
}

/** How many names it remembers. */
const MOST_CONTENDED = 1_000;

/**
 * The names that others wanted when this process asked last. For those, a request reads at once who owns them and who
 * waits; for all others it does without, because that costs etcd as much as half of the request.
 */
class ContendedNames {
  private readonly locks = new Set<string>();

  has(lock: string): boolean {
    return this.locks.has(lock);
  }

  add(lock: string): void {
    if (this.locks.size >= MOST_CONTENDED) this.locks.clear();
    this.locks.add(lock);
  }

  delete(lock: string): void {
    this.locks.delete(lock);
  }
}

function escaped(text: string): string {
  return text.replace(/[%/]/g, (char) => (char === '%' ? '%25' : '%2F'));
}

function unescaped(text: string): string {
  return text.replace(/%2F|%25/g, (code) => (code === '%25' ? '%' : '/'));
}
