import type { RenewAnswer, RenewRequest } from '../../../contracts/lock-backend.js';
import { isOfOneRow } from '../connection/diagnosis.js';
import type { MysqlLink } from '../connection/mysql-link.js';
import type { BatchStatements, HeldRow } from '../rows/batch-statements.js';
import type { LockTable } from '../rows/lock-table.js';
import { rowIdOf, type RowTicket } from '../rows/row-id.js';
import { processOf } from '../rows/waiting-marks.js';
import type { RowStatements } from '../rows/row-statements.js';
import type { LockedRows } from './locked-rows.js';

type Rows = readonly RowTicket[];

/** What a statement found: by key, the rows of its names whose lease runs. */
type Held = ReadonlyMap<string, HeldRow>;

/** A statement for several requests, and on how many rows. */
interface Shared {
  readonly held: Promise<Held>;
  readonly size: number;
}

/**
 * Renews leases: those with the same `ttl` in one statement, and then reads which of them the tickets own. Where
 * another transaction keeps a row locked, the others are renewed without it.
 */
export class LeaseRenewals {
  constructor(
    private readonly link: MysqlLink,
    private readonly table: LockTable<RowStatements>,
    private readonly statements: BatchStatements,
    private readonly locked: LockedRows,
  ) {}

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    const rowsOf = requests.map(({ prefix, names, ticket }) =>
      names.map((name) => ({ id: rowIdOf(prefix, name), ticket })),
    );
    const apart = rowsOf.map((rows) => rows.some(({ id }) => this.locked.has(id)));
    const together = new Map<number, Shared>();
    for (const ttl of new Set(requests.map((request) => request.ttl))) {
      const rows = rowsOf.filter((_rows, index) => requests[index]?.ttl === ttl && !apart[index]).flat();
      if (rows.length > 0) together.set(ttl, { held: this.prolong(rows, ttl), size: rows.length });
    }
    return requests.map(async ({ ttl }, index) => {
      const rows = rowsOf[index] as Rows;
      const shared = apart[index] ? undefined : together.get(ttl);
      return answerOf(rows, await (shared ? this.sharedOrAlone(shared, rows, ttl) : this.prolong(rows, ttl)), ttl);
    });
  }

  /** Where the server refused the statement for what may be the fault of one row, these are renewed alone. */
  private async sharedOrAlone({ held, size }: Shared, rows: Rows, ttl: number): Promise<Held> {
    try {
      return await held;
    } catch (error) {
      if (isOfOneRow(error) && size > rows.length) return this.prolong(rows, ttl);
      throw error;
    }
  }

  private prolong(rows: Rows, ttl: number): Promise<Held> {
    return this.locked.watchAtOnce(rows, () => this.prolongAndRead(rows, ttl));
  }

  private async prolongAndRead(rows: Rows, ttl: number): Promise<Held> {
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
