import type { Pending, QueueAnswer } from '../../../../contracts/lock-backend.js';
import { BatchedCall } from '../../../batching/batched-call.js';
import { TurnBatch } from '../../../batching/turn-batch.js';
import type { Row } from '../../connection/postgres-link.js';
import type { ContendedNames } from '../contended-names.js';
import { granted, queueAnswer } from '../lease-answers.js';
import { nameInMessages, type LeaseChannel } from '../lease-channel.js';
import type { LeaseTable } from '../lease-table.js';
import { inOrder } from '../lock-key.js';
import { askTogether, LANES, MOST, valuesOf, type Failed, type LockCall } from './lock-calls.js';

export interface EnqueueCall extends LockCall {
  readonly ttl: number;
  readonly claim: number | null;
}

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
    this.takes = new TurnBatch((...batch) => this.sendTakes(...batch), MOST, LANES);
    this.enqueues = new TurnBatch((...batch) => this.sendEnqueues(...batch), MOST, LANES);
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
    const [call] = calls;
    if (calls.length === 1 && call) {
      const { key, ticket, ttl, claim } = call;
      this.table.ask(
        statements.enqueue,
        [key, ticket, ttl, claim, waiterName(call)],
        ({ rows: [row] }) => answered([this.noted(call, queueAnswer(row as Row))]),
        failed,
      );
      return;
    }
    askTogether(
      this.table,
      statements.enqueueAll,
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

/** What a waiter's messages name the lock by: text without NUL. A ticket that must not wait needs none. */
function waiterName({ name, claim }: EnqueueCall): string | null {
  return claim === null ? null : nameInMessages(name);
}
