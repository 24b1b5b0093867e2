import type { Pending, ReleaseAnswer } from '../../../../contracts/lock-backend.js';
import { BatchedCall } from '../../../batching/batched-call.js';
import { TurnBatch } from '../../../batching/turn-batch.js';
import type { Row } from '../../connection/postgres-link.js';
import type { ContendedNames } from '../contended-names.js';
import { releaseStatus } from '../lease-answers.js';
import type { LeaseTable } from '../lease-table.js';
import { askTogether, LANES, MOST, type Failed, type LockCall } from './lock-calls.js';
import { ReleasesUnderWay } from './releases-under-way.js';

type Status = ReleaseAnswer['status'];

/**
 * Gives names back. Calls of one turn of the event loop share a statement. A name that nobody waits for is freed by a
 * plain statement, which costs less than a function; the function releases what that one did not free.
 */
export class LeaseReleases {
  private readonly frees: TurnBatch<LockCall, boolean>;
  private readonly releases: TurnBatch<LockCall, Status>;
  private readonly underWay = new ReleasesUnderWay();

  constructor(
    private readonly table: LeaseTable,
    private readonly contended: ContendedNames,
  ) {
    this.frees = new TurnBatch((...batch) => this.sendFrees(...batch), MOST, LANES);
    this.releases = new TurnBatch((...batch) => this.sendReleases(...batch), MOST, LANES);
  }

  release(call: LockCall): Pending<ReleaseAnswer> {
    const { name, ticket } = call;
    const id = `${ticket} ${name}`;
    this.underWay.begun(id);
    const both = new BatchedCall((answer) => answer as ReleaseAnswer);
    const answered = (status: Status) => both.settle({ status, resent: this.underWay.ended(id) });
    const failed = (error: unknown) => {
      this.underWay.ended(id);
      both.fail(error);
    };
    const release = () => this.releases.add(call).then(answered, failed);
    if (this.contended.has(name)) release();
    else {
      this.frees.add(call).then((freed) => {
        if (freed) answered('released');
        else release();
      }, failed);
    }
    return both;
  }

  /** Answers whether it freed the name. */
  private sendFrees(calls: readonly LockCall[], answered: (freed: readonly boolean[]) => void, failed: Failed): void {
    const { statements } = this.table;
    const [call] = calls;
    if (calls.length === 1 && call) {
      this.table.ask(statements.free, [call.key, call.ticket], ({ count }) => answered([count === 1]), failed);
      return;
    }
    askTogether(
      this.table,
      statements.freeAll,
      calls,
      [],
      (rows) => answered(rows.map((row) => row !== undefined)),
      failed,
    );
  }

  private sendReleases(
    calls: readonly LockCall[],
    answered: (statuses: readonly Status[]) => void,
    failed: Failed,
  ): void {
    const { statements } = this.table;
    const [call] = calls;
    const statusOf = (row: Row | undefined) => releaseStatus((row as Row)[0]);
    if (calls.length === 1 && call) {
      this.table.ask(
        statements.release,
        [call.key, call.ticket],
        ({ rows: [row] }) => answered([statusOf(row)]),
        failed,
      );
      return;
    }
    askTogether(this.table, statements.releaseAll, calls, [], (rows) => answered(rows.map(statusOf)), failed);
  }
}
