import type { ReleaseAnswer, RenewAnswer } from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import { TurnBatch } from '../batch.js';
import type { BatchStatements, EndedRow, HeldRow } from './batch-statements.js';
import { type LockedRows, MOST_AT_ONCE, LANES } from './lease-takes.js';
import { TOKENS, type LockTable, type RowTicket } from './lock-table.js';
import { isOfOneRow, type Header } from './mysql-connection.js';
import type { MysqlLink } from './mysql-link.js';
import type { RowStatements } from './row-statements.js';

type Status = ReleaseAnswer['status'];

/**
 * Ends the ownership of names. Those that callers release in one turn of the event loop are freed in one statement, and
 * a single one by a plain statement of its own.
 */
export class LeaseReleases {
  private readonly batches: TurnBatch<RowTicket, ReleaseAnswer | undefined>;

  constructor(
    private readonly table: LockTable<RowStatements>,
    private readonly statements: BatchStatements,
    private readonly locked: LockedRows,
  ) {
    this.batches = new TurnBatch((...batch) => this.send(...batch), MOST_AT_ONCE, LANES);
  }

  async release(row: RowTicket): Promise<ReleaseAnswer> {
    const together = this.locked.has(row.id) ? undefined : await this.batches.add(row);
    return together ?? this.releaseAlone(row);
  }

  async keep(row: RowTicket, rest: number): Promise<ReleaseAnswer> {
    const { insertId } = await this.table.change(this.table.statements.shorten(row, rest));
    return { status: insertId > 0 ? 'released' : await this.notOwned(row), resent: false };
  }

  private send(
    rows: readonly RowTicket[],
    answered: (answers: readonly (ReleaseAnswer | undefined)[]) => void,
    failed: (error: unknown) => void,
  ): void {
    const [row] = rows;
    if (rows.length === 1 && row) this.releaseAlone(row).then((answer) => answered([answer]), failed);
    else this.releaseTogether(rows).then(answered, failed);
  }

  private async releaseAlone(row: RowTicket): Promise<ReleaseAnswer> {
    const { affectedRows } = await this.locked.watch([row], () => this.table.change(this.table.statements.free(row)));
    return { status: affectedRows > 0 ? 'released' : await this.notOwned(row), resent: false };
  }

  /** Why the ticket does not own the row. */
  private async notOwned({ id }: RowTicket): Promise<Status> {
    return (await this.table.rows(this.table.statements.state(id))).length > 0 ? 'taken' : 'gone';
  }

  /** The answers; `undefined` for a row that must be released alone. */
  private async releaseTogether(rows: readonly RowTicket[]): Promise<readonly (ReleaseAnswer | undefined)[]> {
    const once = [...new Map(rows.map((row) => [`${row.id} ${row.ticket}`, row])).values()];
    // Statements that lock rows in one order never wait for each other in a circle.
    const ordered = once.toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const header = await this.freeAll(ordered);
    if (!header) return [];
    if (header.affectedRows === once.length) return rows.map(() => ({ status: 'released', resent: false }));
    const ended = await this.table.rows(this.statements.ended(ordered));
    const byId = new Map(ended.map((row) => [row.id, row]));
    const at = header.affectedRows > 0 ? header.insertId : undefined;
    return rows.map(({ id, ticket }) => outcomeOf(ticket, byId.get(id), at));
  }

  /** `undefined` where the server refused the statement for what may be the fault of one row: it freed none. */
  private async freeAll(rows: readonly RowTicket[]): Promise<Header | undefined> {
    try {
      return await this.locked.watch(rows, () => this.table.change(this.statements.freeAll(rows)));
    } catch (error) {
      if (isOfOneRow(error)) return undefined;
      throw error;
    }
  }
}

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

  renew(rows: readonly (RowTicket & { readonly ttl: number })[]): readonly Promise<RenewAnswer>[] {
    const apart = rows.map(({ id }) => this.locked.has(id));
    const together = new Map<number, Shared>();
    for (const ttl of new Set(rows.map((row) => row.ttl))) {
      const alike = rows.filter((row, index) => row.ttl === ttl && !apart[index]);
      if (alike.length > 0) together.set(ttl, { held: this.prolong(alike, ttl), size: alike.length });
    }
    return rows.map(async (row, index) => {
      const { ttl } = row;
      const shared = apart[index] ? undefined : together.get(ttl);
      return answerOf(row, await (shared ? this.sharedOrAlone(shared, row, ttl) : this.prolong([row], ttl)), ttl);
    });
  }

  /** Where the server refused the statement for what may be the fault of one row, each is renewed alone. */
  private async sharedOrAlone({ held, size }: Shared, row: RowTicket, ttl: number): Promise<Held> {
    try {
      return await held;
    } catch (error) {
      if (isOfOneRow(error) && size > 1) return this.prolong([row], ttl);
      throw error;
    }
  }

  private prolong(rows: readonly RowTicket[], ttl: number): Promise<Held> {
    return this.locked.watchAtOnce(rows, () => this.prolongAndRead(rows, ttl));
  }

  private async prolongAndRead(rows: readonly RowTicket[], ttl: number): Promise<Held> {
    const { statements } = this;
    await this.table.change(statements.prolong(rows, ttl));
    const held = await this.link.rows(statements.held(rows));
    return new Map(held.map((row) => [row.id, row]));
  }
}

/**
 * What a statement did that freed some of its rows only: at the time `at`, or none where that is `undefined`. `row` is
 * what was read after it, when others may have taken the name already. `undefined`: release it alone.
 */
function outcomeOf(ticket: string, row: EndedRow | undefined, at: number | undefined): ReleaseAnswer | undefined {
  const status = row?.held ? 'taken' : 'gone';
  if (at === undefined) return { status, resent: false };
  if (!row) return { status, resent: true };
  const { owner } = row;
  if (owner === '' && row.ends === at) return { status: 'released', resent: false };
  // The statement did not find it: the lease had ended, or the ticket took the name later, by a late try.
  if (owner === ticket) return row.held ? undefined : { status, resent: false };
  // The row lost the ticket before the statement, or through it. Tokens are not below the time of their grant.
  const since = owner === '' ? row.ends : row.token - TOKENS;
  return { status, resent: since >= at };
}

function answerOf({ id, ticket }: RowTicket, held: Held, ttl: number): RenewAnswer {
  const row = held.get(id);
  if (row?.owner !== ticket) return { status: 'not-owner' };
  const process = processOf(ticket);
  const others = [row.waiter1, row.waiter2].filter((waiter) => waiter !== '' && waiter !== process);
  // Some of the lease has passed since the renewal, from which the answer counts.
  return { status: 'renewed', remaining: Math.max(ttl, row.remaining), waiting: others.length };
}
