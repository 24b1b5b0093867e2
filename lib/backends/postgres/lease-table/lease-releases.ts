import type { Pending, ReleaseAnswer, RenewAnswer } from '../../../contracts/lock-backend.js';
import { BatchedCall, TurnBatch } from '../../batch.js';
import type { Row } from '../connection/postgres-link.js';
import type { ContendedNames } from './lease-channel.js';
import type { LeaseTable } from './lease-table.js';
import { askTogether, LANES, MOST_AT_ONCE, type Failed, type LockCall } from './lease-takes.js';

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
    this.frees = new TurnBatch((...batch) => this.sendFrees(...batch), MOST_AT_ONCE, LANES);
    this.releases = new TurnBatch((...batch) => this.sendReleases(...batch), MOST_AT_ONCE, LANES);
  }

  release(call: LockCall): Pending<ReleaseAnswer> {
    const { name, ticket } = call;
    const id = `${ticket} ${name}`;
    this.underWay.begun(id);
    const both = new BatchedCall<ReleaseAnswer>();
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
      [undefined, statements.freeAll],
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
    const { release, releaseAll } = this.table.statements;
    const statusOf = (row: Row | undefined) => releaseStatus((row as Row)[0]);
    askTogether(this.table, [release, releaseAll], calls, [], (rows) => answered(rows.map(statusOf)), failed);
  }
}

interface RenewCall extends LockCall {
  readonly ttl: number;
}

/** Renews leases. Calls of one turn of the event loop share a statement. */
export class LeaseRenewals {
  private readonly renewals: TurnBatch<RenewCall, RenewAnswer>;

  constructor(table: LeaseTable) {
    this.renewals = new TurnBatch(
      (calls, answered, failed) => {
        const renewed = (rows: readonly (Row | undefined)[]) => answered(rows.map((row) => renewAnswer(row as Row)));
        askTogether(table, [undefined, table.statements.renewAll], calls, [({ ttl }) => ttl], renewed, failed);
      },
      MOST_AT_ONCE,
      LANES,
    );
  }

  renew(call: RenewCall): Pending<RenewAnswer> {
    return this.renewals.add(call);
  }
}

/** The status of an answer of `release` or `keep`. */
export function releaseStatus(answer: unknown): Status {
  return Number(answer) === 1 ? 'released' : Number(answer) === 0 ? 'gone' : 'taken';
}

function renewAnswer([remaining, waiting]: Row): RenewAnswer {
  if (Number(remaining) < 0) return { status: 'not-owner' };
  return { status: 'renewed', remaining: Number(remaining), waiting: Number(waiting) };
}

interface UnderWay {
  count: number;
  repeated: boolean;
}

/**
 * The releases that have no answer yet. Statements travel on several connections, and a later release of the same
 * ticket may overtake an earlier one: that one then answers "gone" of a name that its ticket had owned.
 */
class ReleasesUnderWay {
  private readonly byCall = new Map<string, UnderWay>();

  /** Call it when the release is asked for. */
  begun(call: string): void {
    const known = this.byCall.get(call);
    if (!known) this.byCall.set(call, { count: 1, repeated: false });
    else {
      known.count += 1;
      known.repeated = true;
    }
  }

  /** Call it when the release has ended. Answers whether another of the same ticket was under way meanwhile. */
  ended(call: string): boolean {
    const known = this.byCall.get(call);
    if (!known) return false;
    known.count -= 1;
    if (known.count === 0) this.byCall.delete(call);
    return known.repeated;
  }
}
