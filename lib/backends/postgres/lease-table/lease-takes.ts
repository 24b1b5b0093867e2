import type { Pending, QueueAnswer, Busy, Granted } from '../../../contracts/lock-backend.js';
import { BatchedCall, TurnBatch } from '../../batch.js';
import type { Row, Statement } from '../connection/postgres-link.js';
import { type ContendedNames, nameInMessages, type LeaseChannel } from './lease-channel.js';
import { type LeaseTable, inOrder } from './lease-table.js';

/** One call for one name. */
export interface LockCall {
  readonly key: string;
  readonly name: string;
  readonly ticket: string;
}

interface EnqueueCall extends LockCall {
  readonly ttl: number;
  readonly claim: number | null;
}

/**
 * How many calls one statement carries at most. They hold the rows of their locks until all are done; and while the
 * server runs the statement of one half of the callers, this process can serve the other half.
 */
export const MOST_AT_ONCE = 50;
/** How many statements of one kind are under way while further calls gather. */
export const LANES = { lanes: 2 };

/**
 * Takes names, or queues for them. Calls of one turn of the event loop share a statement. A name that nobody waits for
 * is taken by a plain statement, which costs less than a function.
 */
export class LeaseTakes {
  private readonly takes: TurnBatch<EnqueueCall, QueueAnswer | undefined>;
  private readonly enqueues: TurnBatch<EnqueueCall, QueueAnswer>;

  constructor(
    private readonly table: LeaseTable,
    private readonly contended: ContendedNames,
    private readonly channel: LeaseChannel,
  ) {
    this.takes = new TurnBatch((...batch) => this.sendTakes(...batch), MOST_AT_ONCE, LANES);
    this.enqueues = new TurnBatch((...batch) => this.sendEnqueues(...batch), MOST_AT_ONCE, LANES);
  }

  enqueue(call: EnqueueCall): Pending<QueueAnswer> {
    if (this.contended.has(call.name)) return this.enqueues.add(call);
    const both = new BatchedCall<QueueAnswer>();
    const failed = (error: unknown) => both.fail(error);
    this.takes.add(call).then((taken) => {
      if (taken) both.settle(taken);
      else this.enqueues.add(call).then((answer) => both.settle(answer), failed);
    }, failed);
    return both;
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
      this.table.ask(
        statements.take,
        [key, ticket, ttl],
        ({ rows: [row] }) => answered([row && granted(row[0], 1, ttl, 0)]),
        failed,
      );
      return;
    }
    // One statement takes no row twice.
    const once = new Map(calls.map((each) => [each.name, each]));
    this.table.ask(
      statements.takeAll,
      valuesOf(inOrder([...once.values()]), [({ ttl }) => ttl]),
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
    askTogether(
      this.table,
      [statements.enqueue, statements.enqueueAll],
      calls,
      [({ ttl }) => ttl, ({ claim }) => claim, waiterName],
      (rows) => answered(rows.map((row, index) => this.noted(calls[index] as EnqueueCall, queueAnswer(row as Row)))),
      failed,
    );
  }

  private noted({ name }: EnqueueCall, answer: QueueAnswer): QueueAnswer {
    this.contended.set(name, answer.status === 'busy' || answer.waiting !== 0);
    return this.channel.withReach(answer, name);
  }
}

/** Reads the columns `status`, `token`, `tokens`, `remaining`, `others`, `place`, `holder`. */
export function queueAnswer([status, token, tokens, remaining, others, place, holder]: Row): QueueAnswer {
  if (Number(status) === 1) return granted(token, tokens, remaining, others);
  return {
    status: 'busy',
    unissued: Number(token),
    remaining: Math.max(0, Number(remaining)),
    first: Number(place) === 1,
    far: Number(place) === 0,
    owner: String(holder),
  } satisfies Busy;
}

export function granted(token: unknown, tokens: unknown, remaining: unknown, waiting: unknown): Granted {
  const first = Number(token);
  if (!Number.isSafeInteger(first) || first <= 0) {
    throw new Error(`PostgreSQL answered ${first}, which is not a fencing token`);
  }
  return {
    status: 'granted',
    tokens: { first, count: Number(tokens) },
    remaining: Number(remaining),
    waiting: Number(waiting),
  };
}

export type Failed = (error: unknown) => void;

/** Reads what a statement takes beside the keys and the tickets. */
type Column<Call> = (call: Call) => unknown;

/**
 * Sends the keys, the tickets and further `columns` of the calls, in the order of the keys, to the second statement,
 * whose rows begin with the number of their call; those of a single call to the first one, if there is one. Answers a
 * row for each call, in the order of the calls, or `undefined` where there is none.
 */
export function askTogether<Call extends LockCall>(
  table: LeaseTable,
  [one, all]: readonly [one: Statement | undefined, all: Statement],
  calls: readonly Call[],
  columns: readonly Column<Call>[],
  answered: (rows: readonly (Row | undefined)[]) => void,
  failed: Failed,
): void {
  const [call] = calls;
  if (one && call && calls.length === 1) {
    const values = [call.key, call.ticket, ...columns.map((column) => column(call))];
    return table.ask(one, values, ({ rows: [row] }) => answered([row]), failed);
  }
  const ordered = inOrder(calls);
  table.ask(
    all,
    valuesOf(ordered, columns),
    ({ rows }) => {
      const rowOf = new Map<Call, Row>();
      for (const [number, ...row] of rows) rowOf.set(ordered[Number(number) - 1] as Call, row);
      answered(calls.map((each) => rowOf.get(each)));
    },
    failed,
  );
}

/** An array for each parameter of a statement. */
function valuesOf<Call extends LockCall>(
  calls: readonly Call[],
  columns: readonly Column<Call>[],
): readonly unknown[][] {
  return [({ key }: Call) => key, ({ ticket }: Call) => ticket, ...columns].map((column) => calls.map(column));
}

/** What a waiter's messages name the lock by: text without NUL. A ticket that must not wait needs none. */
function waiterName({ name, claim }: EnqueueCall): string | null {
  return claim === null ? null : nameInMessages(name);
}
