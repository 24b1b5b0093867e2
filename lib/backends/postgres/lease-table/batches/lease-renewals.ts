import type { Pending, RenewAnswer } from '../../../../contracts/lock-backend.js';
import { TurnBatch } from '../../../batching/turn-batch.js';
import type { Row } from '../../connection/postgres-link.js';
import type { LeaseTable } from '../lease-table.js';
import { askTogether, LANES, MOST, type LockCall } from './lock-calls.js';

export interface RenewCall extends LockCall {
  readonly ttl: number;
}

/** Renews leases. Calls of one turn of the event loop share a statement. */
export class LeaseRenewals {
  private readonly renewals: TurnBatch<RenewCall, RenewAnswer>;

  constructor(table: LeaseTable) {
    this.renewals = new TurnBatch(
      (calls, answered, failed) => {
        const renewed = (rows: readonly (Row | undefined)[]) => answered(rows.map((row) => renewAnswer(row as Row)));
        askTogether(table, table.statements.renewAll, calls, [({ ttl }) => ttl], renewed, failed);
      },
      MOST,
      LANES,
    );
  }

  renew(call: RenewCall): Pending<RenewAnswer> {
    return this.renewals.add(call);
  }
}

function renewAnswer([remaining, waiting]: Row): RenewAnswer {
  if (Number(remaining) < 0) return { status: 'not-owner' };
  return { status: 'renewed', remaining: Number(remaining), waiting: Number(waiting) };
}
