import { BatchedCall } from '../../batching/batched-call.js';
import { TurnBatch } from '../../batching/turn-batch.js';
import type { Pending, QueueAnswer, ReleaseAnswer, RenewAnswer } from '../../../contracts/lock-backend.js';
import type { Reply, Row, Statement } from '../connection/postgres-link.js';
import type { ContendedNames } from './contended-names.js';
import { granted, queueAnswer, releaseStatus } from './lease-answers.js';
import { nameInMessages, type LeaseChannel } from './lease-channel.js';
import type { LeaseTable } from './lease-table.js';
import { inOrder } from './lock-key.js';
import { ReleasesUnderWay } from './releases-under-way.js';

/**
 * How many calls one statement carries at most. They hold the rows of their locks until all are done; and while the
 * server runs the statement of one half of the callers, this process can serve the other half.
 */
const MOST = 50;
/** How many statements of one kind are under way while further calls gather. */
const LANES = { lanes: 2 };

type Failed = (error: unknown) => void;

/** One call for one name. */
interface Call {
  readonly key: string;
  readonly name: string;
  readonly ticket: string;
}

export interface EnqueueCall extends Call {
  readonly ttl: number;
  readonly claim: number | null;
}

export interface RenewCall extends Call {
  readonly ttl: number;
}

/**
 * The calls that many callers make at a time: those of one turn of the event loop share a statement. A single call for
 * a name that nobody waits for is a plain statement, which costs less than a function.
 */
export class LeaseBatches {
  private readonly takes: TurnBatch<EnqueueCall, QueueAnswer | undefined>;
  private readonly enqueues: TurnBatch<EnqueueCall, QueueAnswer>;
  private readonly releases: TurnBatch<Call, ReleaseAnswer>;
  private readonly renewals: TurnBatch<RenewCall, RenewAnswer>;
  private readonly underWay = new ReleasesUnderWay();

  constructor(
    private readonly table: LeaseTable,
    private readonly contended: ContendedNames,
    private readonly channel: LeaseChannel,
  ) {
    this.takes = new TurnBatch((...batch) => this.sendTakes(...batch), MOST, LANES);
    this.enqueues = new TurnBatch((...batch) => this.sendEnqueues(...batch), MOST, LANES);
    this.releases = new TurnBatch((...batch) => this.sendReleases(...batch), MOST, LANES);
    this.renewals = new TurnBatch((...batch) => this.sendRenewals(...batch), MOST, LANES);
  }

  enqueue(call: EnqueueCall): Pending<QueueAnswer> {
    if (this.contended.has(call.name)) return this.enqueues.add(call);
    const both = new BatchedCall((answer) => answer as QueueAnswer);
    const failed = (error: unknown) => both.fail(error);
    this.takes.add(call).then((taken) => {
      if (taken) both.settle(taken);
      else this.enqueues.add(call).then((answer) => both.settle(answer), failed);
    }, failed);
    return both;
  }

  release(call: Call): Pending<ReleaseAnswer> {
    return this.releases.add(call);
  }

  renew(call: RenewCall): Pending<RenewAnswer> {
    return this.renewals.add(call);
  }

  /** Answers `undefined` for a name that is not free, or that others wait for. */
  private sendTakes(
    calls: readonly EnqueueCall[],
    answered: (answers: readonly (QueueAnswer | undefined)[]) => void,
    failed: Failed,
  ): void {
    const { statements } = this.table;
    const [call] = calls;
    if (calls.length === 1 && call) {
      const { key, ticket, ttl } = call;
      const taken = ({ rows: [row] }: Reply) => answered([row && granted(row[0], 1, ttl, 0)]);
      return this.table.ask(statements.take, [key, ticket, ttl], taken, failed);
    }
    // One statement takes no row twice.
    const once = new Map(calls.map((each) => [each.name, each]));
    const values = columnsOf(inOrder([...once.values()]), [({ ttl }) => ttl]);
    this.table.ask(
      statements.takeAll,
      values,
      ({ rows }) => {
        const tokens = new Map(rows.map(([ticket, token]) => [ticket, token]));
        answered(
          calls.map(({ ticket, ttl }) => (tokens.has(ticket) ? granted(tokens.get(ticket), 1, ttl, 0) : undefined)),
        );
      },
      failed,
    );
  }

  private sendEnqueues(
    calls: readonly EnqueueCall[],
    answered: (answers: readonly QueueAnswer[]) => void,
    failed: Failed,
  ): void {
    const { statements } = this.table;
    const [call] = calls;
    if (calls.length === 1 && call) {
      const { key, ticket, ttl, claim } = call;
      const values = [key, ticket, ttl, claim, waiterName(call)];
      const queued = ({ rows }: Reply) => answered([this.noted(call, queueAnswer(rows[0] as Row))]);
      return this.table.ask(statements.enqueue, values, queued, failed);
    }
    const columns = [({ ttl }: EnqueueCall) => ttl, ({ claim }: EnqueueCall) => claim, waiterName];
    this.inOneStatement(statements.enqueueAll, calls, columns, failed, (rows) =>
      answered(rows.map((row, index) => this.noted(calls[index] as EnqueueCall, queueAnswer(row)))),
    );
  }

  private noted({ name }: EnqueueCall, answer: QueueAnswer): QueueAnswer {
    this.contended.set(name, answer.status === 'busy' || answer.waiting !== 0);
    return this.channel.withReach(answer, name);
  }

  private sendReleases(
    calls: readonly Call[],
    answered: (answers: readonly ReleaseAnswer[]) => void,
    failed: Failed,
  ): void {
    const ids = calls.map(({ ticket, name }) => `${ticket} ${name}`);
    for (const id of ids) this.underWay.sent(id);
    this.releaseAll(
      calls,
      (statuses) => {
        const repeated = ids.map((id) => this.underWay.ended(id));
        answered(statuses.map((status, index) => ({ status, resent: repeated[index] === true })));
      },
      (error) => {
        for (const id of ids) this.underWay.ended(id);
        failed(error);
      },
    );
  }

  private releaseAll(
    calls: readonly Call[],
    answered: (statuses: readonly ReleaseAnswer['status'][]) => void,
    failed: Failed,
  ): void {
    const [call] = calls;
    if (calls.length === 1 && call) return this.releaseOne(call, (status) => answered([status]), failed);
    this.inOneStatement(this.table.statements.releaseAll, calls, [], failed, (rows) =>
      answered(rows.map(([answer]) => releaseStatus(answer))),
    );
  }

  private releaseOne(
    { key, name, ticket }: Call,
    answered: (status: ReleaseAnswer['status']) => void,
    failed: Failed,
  ): void {
    const { statements } = this.table;
    const release = () =>
      this.table.ask(
        statements.release,
        [key, ticket],
        ({ rows: [row] }) => answered(releaseStatus((row as Row)[0])),
        failed,
      );
    if (this.contended.has(name)) return release();
    this.table.ask(
      statements.free,
      [key, ticket],
      ({ count }) => {
        if (count === 1) answered('released');
        else release();
      },
      failed,
    );
  }

  private sendRenewals(
    calls: readonly RenewCall[],
    answered: (answers: readonly RenewAnswer[]) => void,
    failed: Failed,
  ): void {
    this.inOneStatement(this.table.statements.renewAll, calls, [({ ttl }) => ttl], failed, (rows) =>
      answered(
        rows.map(([remaining, waiting]): RenewAnswer => {
          if (Number(remaining) < 0) return { status: 'not-owner' };
          return { status: 'renewed', remaining: Number(remaining), waiting: Number(waiting) };
        }),
      ),
    );
  }

  /**
   * Sends the keys, the tickets and further `columns` of the calls. Answers a row for each call, in the order of the
   * calls.
   */
  private inOneStatement<C extends Call>(
    statement: Statement,
    calls: readonly C[],
    columns: readonly ((call: C) => unknown)[],
    failed: Failed,
    answered: (rows: readonly Row[]) => void,
  ): void {
    const ordered = inOrder(calls);
    const values = columnsOf(ordered, columns);
    this.table.ask(
      statement,
      values,
      ({ rows }) => {
        const rowOf = new Map<C, Row>();
        for (const [number, ...row] of rows) rowOf.set(ordered[Number(number) - 1] as C, row);
        answered(calls.map((call) => rowOf.get(call) as Row));
      },
      failed,
    );
  }
}

/** An array for each parameter of a statement. */
function columnsOf<C extends Call>(calls: readonly C[], columns: readonly ((call: C) => unknown)[]): unknown[][] {
  return [({ key }: C) => key, ({ ticket }: C) => ticket, ...columns].map((column) => calls.map(column));
}

/** What a waiter's messages name the lock by: text without NUL. A ticket that must not wait needs none. */
export function waiterName({ name, claim }: { readonly name: string; readonly claim: number | null }): string | null {
  return claim === null ? null : nameInMessages(name);
}
