// etcd as its JSON gateway shows it: keys with revisions and leases, transactions, watches. One member, in memory.

import type { KeyValue, Operation, Txn } from '../../../lib/backends/etcd/etcd-transactions.js';

/** A refusal, with its gRPC code. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly code: number,
  ) {
    super(message);
  }
}

interface Stored {
  /** Keys and values stay in base64; `order` is what keys are compared by. */
  readonly key: string;
  readonly order: string;
  readonly value: string;
  readonly created: number;
  readonly modified: number;
  readonly lease: string;
}

interface Lease {
  readonly ttl: number;
  ends: number;
}

interface Event {
  readonly revision: number;
  readonly type?: 'DELETE';
  readonly kv: KeyValue;
}

interface Watch {
  readonly key: string;
  tell(message: object): void;
}

interface Range {
  readonly key: string;
  readonly range_end?: string;
  readonly sort_target?: string;
  readonly limit?: string;
  readonly count_only?: boolean;
}

interface Put {
  readonly key: string;
  readonly value?: string;
  readonly lease?: string;
  readonly ignore_value?: boolean;
  readonly ignore_lease?: boolean;
}

interface TxnAnswer {
  readonly succeeded?: boolean;
  readonly responses: object[];
}

export class EtcdModel {
  private revision = 1;
  private keys = new Map<string, Stored>();
  private leases = new Map<string, Lease>();
  private history: Event[] = [];
  private readonly watches = new Set<Watch>();
  private lastLease = 7_587_000;

  /** `now()`: ms of its clock. */
  constructor(private readonly now: () => number) {}

  /** Loses all data, as a cluster that is set up anew. */
  reset(): void {
    this.revision = 1;
    this.keys = new Map();
    this.leases = new Map();
    this.history = [];
    this.watches.clear();
  }

  /** @throws Refused */
  call(path: string, body: object): object {
    switch (path) {
      case '/v3/kv/txn':
        return this.transact(body as Txn);
      case '/v3/lease/grant':
        return this.grant((body as { TTL: number }).TTL);
      case '/v3/lease/keepalive':
        return { result: { ...this.header, ...this.keepAlive((body as { ID: string }).ID) } };
      case '/v3/lease/revoke':
        if (!this.endLease((body as { ID: string }).ID)) throw new Refused('etcdserver: requested lease not found', 5);
        return this.header;
      case '/v3/lease/timetolive':
        return { ...this.header, ...this.timeToLive(body as { ID: string; keys?: boolean }) };
      case '/v3/maintenance/status':
        return { ...this.header, version: '3.5.9', leader: '1' };
      default:
        throw new Error(`The model of etcd does not know ${path}`);
    }
  }

  /** Begins with what happened since `start_revision`. Returns what ends it. */
  watch(
    { key, start_revision: since }: { readonly key: string; readonly start_revision?: string },
    tell: Watch['tell'],
  ) {
    const watch = { key, tell };
    this.watches.add(watch);
    tell({ ...this.header, created: true });
    const missed = this.history.filter((each) => each.kv.key === key && each.revision >= Number(since ?? Infinity));
    if (missed.length > 0) tell({ ...this.header, events: missed });
    return () => this.watches.delete(watch);
  }

  /** Ends the leases whose time is over. */
  expire(): void {
    for (const [id, { ends }] of this.leases) if (ends <= this.now()) this.endLease(id);
  }

  /** Keys of locks and waiters, to see that nothing is left. */
  names(): string[] {
    return Array.from(this.keys.values(), ({ order }) => order);
  }

  private get header() {
    return { header: { revision: String(this.revision) } };
  }

  private transact(txn: Txn): object {
    const writes = new Writes(this.revision + 1);
    // Conditions are decided before anything is written, also those of transactions inside.
    const decide = (each: Txn): Decided => {
      const succeeded = each.compare.every((compare) => this.holds(compare));
      const operations = succeeded ? each.success : each.failure;
      return {
        succeeded,
        steps: operations.map((operation) => ('request_txn' in operation ? decide(operation.request_txn) : operation)),
      };
    };
    const decided = decide(txn);
    this.check(decided);
    const answer = this.carryOut(decided, writes);
    if (writes.events.length > 0) {
      this.revision += 1;
      this.publish(writes.events);
    }
    return { ...this.header, ...answer };
  }

  /** A transaction is refused as a whole, before it has written anything. */
  private check({ steps }: Decided, written = new Set<string>()): void {
    for (const step of steps) {
      if ('steps' in step) this.check(step, written);
      else if ('request_put' in step) {
        const { key, lease = '0', ignore_value: keeps } = step.request_put as Put;
        if (written.has(key)) throw new Refused('etcdserver: duplicate key given in txn request', 3);
        written.add(key);
        if (lease !== '0' && !this.leases.has(lease)) throw new Refused('etcdserver: requested lease not found', 5);
        if (keeps && !this.keys.has(key)) throw new Refused('etcdserver: key not found', 3);
      }
    }
  }

  private carryOut({ succeeded, steps }: Decided, writes: Writes): TxnAnswer {
    const responses = steps.map((step) => {
      if ('steps' in step) return { response_txn: this.carryOut(step, writes) };
      if ('request_range' in step) return { response_range: this.range(step.request_range) };
      if ('request_put' in step) {
        this.put(step.request_put as Put, writes);
        return { response_put: {} };
      }
      if ('request_txn' in step) throw new Error('A transaction inside was not decided');
      for (const each of this.within(step.request_delete_range as Range)) this.remove(each, writes);
      return { response_delete_range: {} };
    });
    return { ...(succeeded && { succeeded }), responses };
  }

  private put(
    { key, value = '', lease = '0', ignore_value: keepsValue, ignore_lease: keepsLease }: Put,
    writes: Writes,
  ) {
    const before = this.keys.get(key);
    const stored: Stored = {
      key,
      order: Buffer.from(key, 'base64').toString('latin1'),
      value: keepsValue ? (before?.value ?? '') : value,
      created: before?.created ?? writes.revision,
      modified: writes.revision,
      lease: keepsLease ? (before?.lease ?? '0') : lease,
    };
    this.keys.set(key, stored);
    writes.events.push({ revision: writes.revision, kv: shown(stored) });
  }

  private remove({ key }: Stored, { events, revision }: Writes): void {
    this.keys.delete(key);
    events.push({ revision, type: 'DELETE', kv: { key, create_revision: '0', mod_revision: String(revision) } });
  }

  private range({ sort_target: sorts, limit, count_only: counts, ...range }: Range): object {
    const found = this.within(range);
    if (sorts === 'CREATE') found.sort((one, other) => one.created - other.created);
    const count = found.length === 0 ? {} : { count: String(found.length) };
    if (counts || found.length === 0) return count;
    return { kvs: found.slice(0, Number(limit ?? 0) || undefined).map(shown), ...count };
  }

  /** In the order of the keys. */
  private within({ key, range_end: end }: Pick<Range, 'key' | 'range_end'>): Stored[] {
    if (end === undefined) {
      const only = this.keys.get(key);
      return only ? [only] : [];
    }
    const [from, to] = [key, end].map((each) => Buffer.from(each, 'base64').toString('latin1')) as [string, string];
    return [...this.keys.values()]
      .filter(({ order }) => order >= from && order < to)
      .toSorted((one, other) => (one.order < other.order ? -1 : 1));
  }

  /** Of a range, all keys must fulfil it; where there is none, a key that was never written. */
  private holds(compare: Txn['compare'][number]): boolean {
    const found = this.within(compare);
    if (found.length === 0) {
      if (compare.target === 'VALUE') return false;
      return Number(compare.target === 'CREATE' ? compare.create_revision : compare.mod_revision) === 0;
    }
    return found.every(({ value, created, modified }) => {
      if (compare.target === 'VALUE') return value === compare.value;
      return compare.target === 'CREATE'
        ? created === Number(compare.create_revision)
        : modified === Number(compare.mod_revision);
    });
  }

  private grant(ttl: number): object {
    const id = String(++this.lastLease);
    this.leases.set(id, { ttl, ends: this.now() + ttl * 1_000 });
    return { ...this.header, ID: id, TTL: String(ttl) };
  }

  private keepAlive(id: string): object {
    const lease = this.leases.get(id);
    if (!lease || lease.ends <= this.now()) return { ID: id };
    lease.ends = this.now() + lease.ttl * 1_000;
    return { ID: id, TTL: String(lease.ttl) };
  }

  private timeToLive({ ID: id, keys }: { readonly ID: string; readonly keys?: boolean }): object {
    const lease = this.leases.get(id);
    if (!lease) return { ID: id, TTL: '-1' };
    const TTL = String(Math.floor((lease.ends - this.now()) / 1_000));
    const attached = [...this.keys.values()].filter((each) => each.lease === id).map(({ key }) => key);
    return { ID: id, TTL, ...(keys && { keys: attached }) };
  }

  private endLease(id: string): boolean {
    if (!this.leases.delete(id)) return false;
    const writes = new Writes(this.revision + 1);
    for (const each of this.keys.values()) if (each.lease === id) this.remove(each, writes);
    if (writes.events.length === 0) return true;
    this.revision += 1;
    this.publish(writes.events);
    return true;
  }

  private publish(events: readonly Event[]): void {
    this.history.push(...events);
    for (const { key, tell } of this.watches) {
      const own = events.filter(({ kv }) => kv.key === key);
      if (own.length > 0) tell({ ...this.header, events: own });
    }
  }
}

/** A transaction whose conditions were looked at. */
interface Decided {
  readonly succeeded: boolean;
  readonly steps: readonly (Operation | Decided)[];
}

/** What one revision writes. */
class Writes {
  readonly events: Event[] = [];

  constructor(readonly revision: number) {}
}

/** As the JSON gateway shows it: what is 0 or empty is left out. */
function shown({ key, value, created, modified, lease }: Stored): KeyValue {
  return {
    key,
    ...(value !== '' && { value }),
    create_revision: String(created),
    mod_revision: String(modified),
    ...(lease !== '0' && { lease }),
  };
}
