import { TurnBatch } from '../../batching/turn-batch.js';
import type { EtcdClient } from './etcd-client.js';
import { EtcdRefusal } from './etcd-failures.js';
import type { Header, KeyValue, Operation, Txn, TxnAnswer } from './etcd-messages.js';
import type { Pending } from '../../../contracts/pending.js';

/** A server takes 128 operations in a transaction; the others are inside of these. */
const MOST_AT_ONCE = 64;

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

interface OfOneLock {
  /** The key of the lock: one transaction must not write a key twice. */
  readonly lock: string;
  readonly txn: Txn;
}

/** The transactions of this process. Those for different locks in one turn of the event loop are sent together. */
export class EtcdTransactions {
  private readonly batch = new TurnBatch<OfOneLock, Outcome>((requests, answered, failed) => {
    this.runAll(requests).then(answered, failed);
  }, MOST_AT_ONCE);

  constructor(private readonly client: EtcdClient) {}

  async run(txn: Txn): Promise<Outcome> {
    const { answer, resent } = await this.client.call<TxnAnswer & { header: Header }>('/v3/kv/txn', txn);
    return new Outcome(answer, Number(answer.header.revision), resent);
  }

  read(operations: readonly Operation[]): Promise<Outcome> {
    return this.run({ compare: [], success: operations, failure: [] });
  }

  /** Runs it together with others; none depends on another. It writes no keys but those of the lock and its waiters. */
  runTogether(lock: string, txn: Txn): Pending<Outcome> {
    return this.batch.add({ lock, txn });
  }

  private async runAll(requests: readonly OfOneLock[]): Promise<readonly (Outcome | Error)[]> {
    const [only] = requests;
    if (only && requests.length === 1) return [await this.run(only.txn)];
    const outcomes = new Map<OfOneLock, Outcome | Error>();
    await Promise.all(
      groupsOf(requests).map(async (group) => {
        for (const [index, outcome] of (await this.runGroup(group)).entries()) {
          outcomes.set(group[index] as OfOneLock, outcome);
        }
      }),
    );
    return requests.map((request) => outcomes.get(request) as Outcome | Error);
  }

  private async runGroup(group: readonly OfOneLock[]): Promise<readonly (Outcome | Error)[]> {
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

/** Groups in which no lock occurs twice. */
function groupsOf(requests: readonly OfOneLock[]): readonly OfOneLock[][] {
  const groups: { readonly locks: Set<string>; readonly requests: OfOneLock[] }[] = [];
  for (const request of requests) {
    let group = groups.find(({ locks }) => !locks.has(request.lock));
    if (!group) groups.push((group = { locks: new Set(), requests: [] }));
    group.locks.add(request.lock);
    group.requests.push(request);
  }
  return groups.map((group) => group.requests);
}
