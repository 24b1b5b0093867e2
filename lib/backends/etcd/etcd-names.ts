import type { Granted, Pending, ReleaseAnswer } from '../../contracts/lock-backend.js';
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
    /** Of no module. */
    readonly keys: EtcdKeys,
    readonly transactions: EtcdTransactions,
    readonly offset: TokenOffset,
    readonly sessions: EtcdSessions,
  ) {}

  /** What `stateIn` needs, from its first operation on; and the tickets of the first `waiters`. */
  reads(lock: EtcdLock, waiters = 1): readonly Operation[] {
    return [get(lock.owner), oldest(lock.waiters, waiters), this.offset.read()];
  }

  /** `at`: the index of the first of the `reads`. */
  stateIn(outcome: Outcome, at = 0): NameState {
    this.offset.learn(outcome.first(at + 2));
    const owner = outcome.first(at);
    const first = outcome.first(at + 1);
    return {
      owner: owner && { ticket: decode(owner.value), lease: owner.lease ?? '0', revision: Number(owner.mod_revision) },
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
  isFree({ all }: EtcdLock): readonly Compare[] {
    return [hasNone(all), this.offset.guard()];
  }

  /** The ticket owns the name, and nobody waits for it: the key of a waiter would have another value. */
  isUnwanted({ all }: EtcdLock, ticket: string): Compare {
    return haveOnly(all, ticket);
  }

  /**
   * Carries out `success` if all of `compare` hold, together with other requests; else `failure`, to which the `reads`
   * are appended.
   */
  async attempt(lock: EtcdLock, { compare, success, failure }: Txn): Promise<Outcome> {
    const { owner } = lock;
    let resent = false;
    if (!this.contended.has(owner)) {
      const outcome = await this.transactions.runTogether(owner, { compare, success, failure: [] });
      if (outcome.succeeded) return outcome;
      this.contended.add(owner);
      ({ resent } = outcome);
    }
    const reads = this.reads(lock);
    const outcome = await this.transactions.runTogether(owner, { compare, success, failure: [...failure, ...reads] });
    if (outcome.succeeded) this.contended.delete(owner);
    return resent ? outcome.asResent() : outcome;
  }

  give({ owner }: EtcdLock, ticket: string, lease: string): Operation {
    return put(owner, ticket, lease);
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
  async mint(lock: EtcdLock, ticket: string): Promise<Outcome> {
    const { owner, waiters } = lock;
    return this.transactions.run({
      compare: [hasValue(owner, ticket), this.offset.guard()],
      success: [touch(owner), remove(waiters + ticket), oldest(waiters)],
      failure: this.reads(lock),
    });
  }

  /**
   * Gives the name to its first waiter, on the lease of that one, if `state` is the present one: `owner` has it, or
   * nobody. The new owner also learns of those who have begun to wait since then: they did not tell it, because they
   * were not the first. Without success, with the `reads`.
   */
  async handOver(
    lock: EtcdLock,
    { owner, first: to, waiting }: NameState & { readonly first: Waiter },
    { caller, also = [], mail }: HandOverExtras = {},
  ): Promise<Outcome> {
    const behind = waiting - 1 + also.length;
    const grant: Mail = {
      kind: 'grant',
      ticket: to.ticket,
      name: lock.name,
      waiting: behind,
      offset: this.offset.value,
    };
    const letters = [
      ...(to.ticket === caller ? [] : [{ to: to.ticket, lease: to.lease, message: grant }]),
      ...(mail ? [mail] : []),
    ];
    const outcome = await this.transactions.run({
      compare: [
        owner ? hasValue(lock.owner, owner.ticket) : isAbsent(lock.owner),
        isSince(to.key, to.since),
        this.offset.guard(),
      ],
      success: [
        count(lock.waiters),
        this.give(lock, to.ticket, to.lease),
        remove(to.key),
        ...also,
        ...this.post(lock, letters),
      ],
      failure: this.reads(lock),
    });
    if (outcome.succeeded && outcome.count(0) > waiting && to.ticket !== caller) void this.want(lock, to);
    return outcome;
  }

  release(lock: EtcdLock, ticket: string): Pending<ReleaseAnswer> {
    return this.sessions.end(ticket, () => this.releaseOne(lock, ticket));
  }

  /** Frees the name of the ticket, or gives it to its first waiter; takes a ticket that waits out of the queue. */
  async releaseOne(lock: EtcdLock, ticket: string): Promise<ReleaseAnswer> {
    let outcome = await this.attempt(lock, {
      compare: [this.isUnwanted(lock, ticket)],
      success: [remove(lock.owner)],
      failure: [remove(lock.waiters + ticket)],
    });
    let { resent } = outcome;
    for (let tries = 0; !outcome.succeeded; tries += 1) {
      const state = this.stateIn(outcome, tries === 0 ? 1 : 0);
      if (tries > 0) await this.offset.tryAgain(tries);
      const { owner, first } = state;
      if (owner && owner.ticket !== ticket) return { status: 'taken', resent };
      if (!owner && !first) return { status: 'gone', resent };
      outcome = first
        ? await this.handOver(lock, { ...state, first })
        : await this.transactions.run({
            compare: [this.isUnwanted(lock, ticket)],
            success: [remove(lock.owner)],
            failure: this.reads(lock),
          });
      resent ||= outcome.resent;
      if (outcome.succeeded && !owner) return { status: 'gone', resent };
    }
    return { status: 'released', resent };
  }

  /** Frees the name of any owner, or gives it to its first waiter. Returns the owner. */
  async force(lock: EtcdLock): Promise<string | null> {
    let outcome = await this.transactions.read(this.reads(lock));
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await this.offset.tryAgain(tries);
      const state = this.stateIn(outcome);
      const { owner, first } = state;
      if (!owner) return null;
      const mail = {
        to: owner.ticket,
        lease: owner.lease,
        message: { kind: 'revoked' as const, ticket: owner.ticket },
      };
      outcome = first
        ? await this.handOver(lock, { ...state, first }, { mail })
        : await this.transactions.run({
            compare: [this.isUnwanted(lock, owner.ticket)],
            success: [remove(lock.owner), ...this.post(lock, [mail])],
            failure: this.reads(lock),
          });
      if (outcome.succeeded) return owner.ticket;
    }
  }

  /** Tells the owner that others wait. A message that is lost is sent again with the next heartbeat. */
  async want(lock: EtcdLock, { ticket, lease }: Pick<Waiter, 'ticket' | 'lease'>): Promise<void> {
    const message: Mail = { kind: 'wanted', ticket, name: lock.name };
    try {
      await this.transactions.run({
        compare: [hasValue(lock.owner, ticket)],
        success: this.post(lock, [{ to: ticket, lease, message }]),
        failure: [],
      });
    } catch {
      // The next heartbeat repeats it.
    }
  }

  /** Puts messages into the mailboxes of the tickets' processes: never without a lease, or they would stay for ever. */
  post({ keys }: EtcdLock, letters: readonly Letter[]): readonly Operation[] {
    const boxes = new Map<string, { lease: string; messages: Mail[] }>();
    for (const { to, lease, message } of letters) {
      if (lease === '0') continue;
      const key = keys.mailbox(processOf(to));
      const box = boxes.get(key);
      if (box) box.messages.push(message);
      else boxes.set(key, { lease, messages: [message] });
    }
    return [...boxes].map(([key, { lease, messages }]) => put(key, JSON.stringify(messages), lease));
  }

  private waiterIn({ key }: KeyValue): string {
    return this.keys.lockIn(decode(key))?.waiter ?? '';
  }
}

/** A lock, and what of it stands in the keys of etcd. */
export interface EtcdLock {
  readonly name: string;
  /** Those of its module. */
  readonly keys: EtcdKeys;
  /** What the keys of the owner and of all waiters begin with, and no others: one condition covers them. */
  readonly all: string;
  /** The key whose value is the ticket that owns the lock. */
  readonly owner: string;
  /** What the keys of all waiters begin with. The ticket follows. They have no value, unlike the owner's. */
  readonly waiters: string;
}

/**
 * The keys of the locks of one module. Each has one segment for the module's prefix, which may be empty, and one for
 * the name or the process: a `/` in them is encoded, so that no name is the beginning of another one's keys.
 */
export class EtcdKeys {
  /** What is added to every token. */
  readonly offset: string;
  private readonly segment: string;

  constructor(
    private readonly root: string,
    prefix?: string,
  ) {
    this.offset = `${root}first-token`;
    this.segment = `/${escaped(prefix ?? '')}/`;
  }

  lock(name: string): EtcdLock {
    const all = `${this.key('lock', name)}/`;
    return { name, keys: this, all, owner: `${all}owner`, waiters: `${all}wait/` };
  }

  /** Where a process gets its messages. */
  mailbox(process: string): string {
    return this.key('mail', process);
  }

  label(process: string): string {
    return this.key('label', process);
  }

  /** Lives as long as the lease. */
  session(lease: string): string {
    return `${this.root}session//${lease}`;
  }

  /** The lock of any module whose key, or that of whose waiter, this is; `undefined` for another key. */
  lockIn(key: string): { readonly lock: EtcdLock; readonly waiter: string | undefined } | undefined {
    const [kind, prefix = '', name, role, ...ticket] = key.slice(this.root.length).split('/');
    if (!key.startsWith(this.root) || kind !== 'lock' || name === undefined) return undefined;
    const lock = new EtcdKeys(this.root, unescaped(prefix)).lock(unescaped(name));
    return { lock, waiter: role === 'wait' ? ticket.join('/') : undefined };
  }

  private key(kind: string, name: string): string {
    return this.root + kind + this.segment + escaped(name);
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
