import type { RenewAnswer, RenewRequest } from '../../../contracts/lock-backend.js';
import type { MysqlLink } from '../connection/mysql-link.js';
import type { BatchStatements, HeldRow } from '../rows/batch-statements.js';
import type { LockTable } from '../rows/lock-table.js';
import { rowIdOf, type RowTicket } from '../rows/row-id.js';
import { processOf } from '../rows/waiting-marks.js';
import type { RowStatements } from '../rows/row-statements.js';

type Rows = readonly RowTicket[];

/** Renews leases: those with the same `ttl` in one statement, and then reads which of them the tickets own. */
export class LeaseRenewals {
  constructor(
    private readonly link: MysqlLink,
    private readonly table: LockTable<RowStatements>,
    private readonly statements: BatchStatements,
  ) {}

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    const rowsOf = requests.map(({ prefix, names, ticket }) =>
      names.map((name) => ({ id: rowIdOf(prefix, name), ticket })),
    );
    const held = new Map<number, Promise<ReadonlyMap<string, HeldRow>>>();
    for (const ttl of new Set(requests.map((request) => request.ttl))) {
      held.set(ttl, this.prolong(rowsOf.filter((_rows, index) => requests[index]?.ttl === ttl).flat(), ttl));
    }
    return requests.map(async ({ ttl }, index) =>
      answerOf(rowsOf[index] as Rows, (await held.get(ttl)) as ReadonlyMap<string, HeldRow>, ttl),
    );
  }

  /** The rows of these names whose lease runs, by key. */
  private async prolong(rows: Rows, ttl: number): Promise<ReadonlyMap<string, HeldRow>> {
    const { statements } = this;
    await this.table.change(statements.prolong(rows, ttl));
    const held = await this.link.rows<HeldRow>(statements.held(rows));
    return new Map(held.map((row) => [row.id.toString('hex'), row]));
  }
}

function answerOf(rows: Rows, held: ReadonlyMap<string, HeldRow>, ttl: number): RenewAnswer {
  let remaining = Infinity;
  let waiting = 0;
  for (const { id, ticket } of rows) {
    const process = processOf(ticket);
    const row = held.get(id);
    if (row?.owner.toString() !== ticket) return { status: 'not-owner' };
    // Some of the lease has passed since the renewal, from which the answer counts.
    remaining = Math.min(remaining, Math.max(ttl, row.remaining));
    const others = [row.waiter1, row.waiter2].filter((waiter) => waiter.length > 0 && waiter.toString() !== process);
    waiting += others.length;
  }
  return { status: 'renewed', remaining, waiting };
}
