import type { Pending } from '../../contracts/store.js';
import { TurnBatch } from '../batch.js';
import type { EtcdClient } from './etcd-client.js';
import { EtcdRefusal } from './etcd-endpoint.js';

/** What a transaction did. */
export class Outcome {
  constructor(
    private readonly answer: TxnAnswer,
    /** The revision after it: that of its writes. */
    readonly revision: number,
    /** Whether an earlier send of it may have been carried out. */
    readonly resent: boolean,
  ) {}

  get succeeded(): boolean {
    return this.answer.succeeded === true;
  }

  asResent(): Outcome {
    return new Outcome(this.answer, this.revision, true);
  }

  /** The first key that the read at `index` found. */
  first(index: number): KeyValue | undefined {
    return this.answer.responses?.[index]?.response_range?.kvs?.[0];
  }

  /** What the read at `index` found. */
  all(index: number): readonly KeyValue[] {
    return this.answer.responses?.[index]?.response_range?.kvs ?? [];
  }

  /** How many keys the read at `index` found. */
  count(index: number): number {
    return Number(this.answer.responses?.[index]?.response_range?.count ?? 0);
  }

  /** That of a transaction inside of this one. */
  inner(index: number): Outcome {
    return new Outcome(this.answer.responses?.[index]?.response_txn ?? {}, this.revision, this.resent);
  }
}

/** A server takes 128 operations in a transaction; the others are inside of these. */
const MOST_AT_ONCE = 64;

interface LockTxn {
  /** The key of the lock: one transaction must not write a key twice. */
  readonly lock: string;
  readonly txn: Txn;
}

/**
 * The transactions of this process. Those for different locks in one turn of the event loop are sent together.
 *
 * Their revisions only rise, unless etcd has lost its data: an answer of a lower revision than was known when its
 * transaction was sent does not count. The listeners of `whenLost` make up for the loss; then the transaction is sent
 * again.
 */
export class EtcdTransactions {
  /** The newest revision that this process has seen, since etcd lost its data if it did. */
  revision = 0;
  private losses = 0;
  private recovered: Promise<unknown> = Promise.resolve();
  private readonly lossListeners: ((newest: number) => Promise<unknown>)[] = [];
  private readonly batch = new TurnBatch<LockTxn, Outcome>((requests, answered, failed) => {
    this.runAll(requests).then(answered, failed);
  }, MOST_AT_ONCE);

  constructor(private readonly client: EtcdClient) {}

  async run(txn: Txn): Promise<Outcome> {
    const { losses, revision: known } = this;
    const { answer, resent } = await this.client.call<TxnAnswer & { header: Header }>('/v3/kv/txn', txn);
    const revision = revisionIn(answer.header);
    requireAnswer(txn, answer);
    if (losses === this.losses && revision >= known) {
      this.revision = Math.max(this.revision, revision);
      return new Outcome(answer, revision, resent);
    }
    if (losses === this.losses) this.lose(revision);
    await this.recovered;
    return (await this.run(txn)).asResent();
  }

  /** `listener` gets the newest revision of what is lost. Nothing of this process counts until it resolves. */
  whenLost(listener: (newest: number) => Promise<unknown>): void {
    this.lossListeners.push(listener);
  }

  private lose(revision: number): void {
    const newest = this.revision;
    this.losses += 1;
    this.revision = revision;
    this.recovered = Promise.all(this.lossListeners.map((listener) => listener(newest)));
    this.recovered.catch(() => {});
  }

  read(operations: readonly Operation[]): Promise<Outcome> {
    return this.run({ compare: [], success: operations, failure: [] });
  }

  /** Runs it together with others; none depends on another. It writes no keys but those of the lock and its waiters. */
  runTogether(lock: string, txn: Txn): Pending<Outcome> {
    return this.batch.add({ lock, txn });
  }

  private async runAll(requests: readonly LockTxn[]): Promise<readonly (Outcome | Error)[]> {
    const [only] = requests;
    if (only && requests.length === 1) return [await this.run(only.txn)];
    const outcomes = new Map<LockTxn, Outcome | Error>();
    await Promise.all(
      groupsOf(requests).map(async (group) => {
        for (const [index, outcome] of (await this.runGroup(group)).entries()) {
          outcomes.set(group[index] as LockTxn, outcome);
        }
      }),
    );
    return requests.map((request) => outcomes.get(request) as Outcome | Error);
  }

  private async runGroup(group: readonly LockTxn[]): Promise<readonly (Outcome | Error)[]> {
    try {
      const outcome = await this.read(group.map(({ txn }) => ({ request_txn: txn })));
      return group.map((_, index) => outcome.inner(index));
    } catch (error) {
      if (!(error instanceof EtcdRefusal)) return group.map(() => error as Error);
      // One of them may be the reason: each has its own answer.
      return Promise.all(group.map(({ txn }) => this.runAgain(txn, error.resent).catch((each: Error) => each)));
    }
  }

  private async runAgain(txn: Txn, resent: boolean): Promise<Outcome> {
    const outcome = await this.run(txn);
    return resent ? outcome.asResent() : outcome;
  }
}

/** Carries out `success` if all of `compare` hold, else `failure`: in one step. */
export interface Txn {
  readonly compare: readonly Compare[];
  readonly success: readonly Operation[];
  readonly failure: readonly Operation[];
}

/** One step of a transaction. */
export type Operation =
  | { readonly request_put: object }
  | { readonly request_range: Range }
  | { readonly request_delete_range: object }
  | { readonly request_txn: Txn };

/** Which keys are read: one, or those from it to before `range_end`. In base64. */
interface Range {
  readonly key: string;
  readonly range_end?: string;
  readonly [option: string]: unknown;
}

export type Compare = {
  readonly key: string;
  readonly range_end?: string;
  readonly result: 'EQUAL';
} & (
  | { readonly target: 'CREATE'; readonly create_revision: string }
  | { readonly target: 'MOD'; readonly mod_revision: string }
  | { readonly target: 'VALUE'; readonly value: string }
);

/** Messages of etcd's JSON gateway: keys and values in base64, 64-bit numbers as text, what is 0 or false left out. */
export interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly create_revision: string;
  readonly mod_revision: string;
  readonly lease?: string;
}

export interface Header {
  readonly revision: string;
}

/** The latest revision that is believed: above it, the tokens of a revision would be no whole numbers. */
const LATEST = 2 ** 42;

/** @throws Error for an answer that it cannot read */
export function revisionIn(header: Header): number {
  return numberIn('revision', header.revision, 1, LATEST);
}

/**
 * A number of an answer, which is a text of digits.
 *
 * @throws Error for anything else
 */
export function numberIn(what: string, value: unknown, least = 0, most = Number.MAX_SAFE_INTEGER): number {
  const number = typeof value === 'string' && DIGITS.test(value) ? Number(value) : NaN;
  if (number >= least && number <= most) return number;
  throw unreadable(`${what} ${JSON.stringify(value)}`);
}

const DIGITS = /^\d+$/;

function isDigits(value: unknown): value is string {
  return typeof value === 'string' && DIGITS.test(value);
}

function unreadable(what: string): Error {
  return new Error(`etcd, or a proxy before it, answered with ${what}, which answers another question or none`);
}

/** @throws Error unless the answer has a reply to each step of the transaction, with the keys that were asked for */
function requireAnswer({ compare, success, failure }: Txn, answer: TxnAnswer | undefined): void {
  const succeeded = answer?.succeeded === true;
  const steps = succeeded ? success : failure;
  const replies: unknown = answer?.responses ?? [];
  const fits = Array.isArray(replies) && replies.length === steps.length && (succeeded || compare.length > 0);
  if (!answer || !fits) throw unreadable(`${JSON.stringify(answer)?.slice(0, 100)} to ${steps.length} steps`);
  for (const [index, step] of steps.entries()) {
    const reply = replies[index] as TxnReply | null;
    if ('request_txn' in step) requireAnswer(step.request_txn, reply?.response_txn);
    else if ('request_range' in step) requireRange(step.request_range, reply?.response_range);
  }
}

function requireRange(asked: Range, answer: RangeAnswer | undefined): void {
  const found: unknown = answer?.kvs ?? [];
  if (!answer || !Array.isArray(found) || !found.every((kv) => isKeyValue(kv, asked))) {
    throw unreadable(`${JSON.stringify(answer)?.slice(0, 100)} to a read`);
  }
  numberIn('count', answer.count ?? '0');
}

function isKeyValue(kv: Readonly<Partial<Record<keyof KeyValue, unknown>>> | null, asked: Range): boolean {
  if (kv === null || typeof kv.key !== 'string' || (asked.range_end === undefined && kv.key !== asked.key))
    return false;
  const { value = '', lease = '0' } = kv;
  return typeof value === 'string' && isDigits(kv.create_revision) && isDigits(kv.mod_revision) && isDigits(lease);
}

interface TxnAnswer {
  readonly succeeded?: boolean;
  readonly responses?: readonly TxnReply[];
}

interface TxnReply {
  readonly response_range?: RangeAnswer;
  readonly response_txn?: TxnAnswer;
}

interface RangeAnswer {
  readonly kvs?: readonly KeyValue[];
  readonly count?: string;
}

export function encode(text: string): string {
  return Buffer.from(text).toString('base64');
}

export function decode(base64: string | undefined): string {
  return Buffer.from(base64 ?? '', 'base64').toString();
}

export function put(key: string, value: string, lease: string): Operation {
  return { request_put: { key: encode(key), value: encode(value), lease } };
}

/** Writes a key without a lease. */
export function putForGood(key: string, value: string): Operation {
  return { request_put: { key: encode(key), value: encode(value) } };
}

/** Gives the key a new revision, and leaves its value and its lease. */
export function touch(key: string): Operation {
  return { request_put: { key: encode(key), ignore_value: true, ignore_lease: true } };
}

export function remove(key: string): Operation {
  return { request_delete_range: { key: encode(key) } };
}

export function get(key: string): Operation {
  return { request_range: { key: encode(key) } };
}

/** The oldest keys with the prefix, `limit` at most, and how many there are. */
export function oldest(prefix: string, limit = 1): Operation {
  const range = { key: encode(prefix), range_end: endOf(prefix) };
  return { request_range: { ...range, sort_order: 'ASCEND', sort_target: 'CREATE', limit: String(limit) } };
}

/** How many keys have the prefix. */
export function count(prefix: string): Operation {
  return { request_range: { key: encode(prefix), range_end: endOf(prefix), count_only: true } };
}

export function isAbsent(key: string): Compare {
  return isSince(key, '0');
}

/** The key exists since the revision. */
export function isSince(key: string, revision: string): Compare {
  return { target: 'CREATE', result: 'EQUAL', key: encode(key), create_revision: revision };
}

/** No key has the prefix. */
export function hasNone(prefix: string): Compare {
  return { target: 'CREATE', result: 'EQUAL', key: encode(prefix), range_end: endOf(prefix), create_revision: '0' };
}

export function hasValue(key: string, value: string): Compare {
  return { target: 'VALUE', result: 'EQUAL', key: encode(key), value: encode(value) };
}

/** There are keys with the prefix, and all of them have the value. */
export function haveOnly(prefix: string, value: string): Compare {
  const range = { key: encode(prefix), range_end: endOf(prefix) };
  return { target: 'VALUE', result: 'EQUAL', ...range, value: encode(value) };
}

/** The key was last written at the revision. */
export function isUnchanged(key: string, revision: string): Compare {
  return { target: 'MOD', result: 'EQUAL', key: encode(key), mod_revision: revision };
}

/** Groups in which no lock occurs twice. */
function groupsOf(requests: readonly LockTxn[]): readonly LockTxn[][] {
  const groups: { readonly locks: Set<string>; readonly requests: LockTxn[] }[] = [];
  for (const request of requests) {
    let group = groups.find(({ locks }) => !locks.has(request.lock));
    if (!group) groups.push((group = { locks: new Set(), requests: [] }));
    group.locks.add(request.lock);
    group.requests.push(request);
  }
  return groups.map((group) => group.requests);
}

/** The end of the range of all keys with the prefix, which ends with an ASCII character. */
function endOf(prefix: string): string {
  const bytes = Buffer.from(prefix);
  bytes[bytes.length - 1] = (bytes.at(-1) as number) + 1;
  return bytes.toString('base64');
}
