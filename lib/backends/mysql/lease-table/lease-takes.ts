import type { AcquireAnswer, Granted } from '../../../contracts/lock-backend.js';
import { TurnBatch } from '../../batching/turn-batch.js';
import { codeOf, isOfOneRow } from '../connection/diagnosis.js';
import type { BatchStatements, FreeRow, RowTake } from '../rows/batch-statements.js';
import type { LockTable } from '../rows/lock-table.js';
import { insertIdOf, takenOf, type RowStatements, type StateRow } from '../rows/row-statements.js';
import { TOKENS } from '../rows/sql.js';
import { LANES, MOST } from './batch-limits.js';
import type { LockedRows } from './locked-rows.js';

/** Takes one name. */
export interface TakeCall extends RowTake {
  readonly name: string;
  /** Other tokens than those that the clock of the server gives. */
  readonly leastToken: number | undefined;
}

/** What became of a call: the ticket owns the row, its statement failed, or the call must ask alone. */
type Outcome = Granted | { readonly status: 'failed'; readonly error: unknown } | undefined;

/** The statement that takes rows that exist, or the one that makes them. */
type Statement = 'takeAll' | 'insertAll';

/**
 * Takes names. Free ones that callers want in one turn of the event loop are taken in one statement, in place of a
 * transaction for each. A grant counts only where that statement took all of its rows: else, each call asks alone, also
 * for a row that its ticket owns already.
 */
export class LeaseTakes {
  private readonly batches: TurnBatch<TakeCall, AcquireAnswer | Outcome>;
  /** The statement that fitted all rows of the last look: the next batch tries it without one. */
  private usual: Statement | undefined = 'takeAll';

  constructor(
    private readonly table: LockTable<RowStatements>,
    private readonly statements: BatchStatements,
    private readonly locked: LockedRows,
  ) {
    this.batches = new TurnBatch((...batch) => this.send(...batch), MOST, LANES);
  }

  async take(call: TakeCall): Promise<AcquireAnswer> {
    // The tokens of one name must not make those of others run ahead of the clock.
    const alone = call.leastToken !== undefined || this.locked.has(call.id);
    const together = alone ? undefined : await this.batches.add(call);
    if (together?.status === 'failed') throw together.error;
    return together ?? this.takeAlone(call);
  }

  private send(
    calls: readonly TakeCall[],
    answered: (answers: readonly (AcquireAnswer | Outcome)[]) => void,
    failed: (error: unknown) => void,
  ): void {
    const [call] = calls;
    if (calls.length === 1 && call) this.takeAlone(call).then((answer) => answered([answer]), failed);
    else this.takeTogether(calls).then(answered, failed);
  }

  private async takeAlone(call: TakeCall): Promise<AcquireAnswer> {
    const { table } = this;
    const { statements } = table;
    const { name, shown, ttl, leastToken } = call;
    const taken = takenOf(
      await this.locked.watch([call], () => table.change(statements.take(call, shown, ttl, leastToken))),
    );
    if ('tokens' in taken) {
      // A process that waits is known by its tries only: without a mark, one may be between two of them.
      return { status: 'granted', remaining: ttl, tokens: taken.tokens, waiting: taken.waiting || undefined };
    }
    const [[last]] = await Promise.all([
      table.rows<Pick<StateRow, 'owner'>>(statements.lastOwner(call.id)),
      table.change(statements.mark(call)),
    ]);
    return { status: 'busy', name, owner: last?.owner.toString() ?? '', remaining: taken.remaining };
  }

  private async takeTogether(calls: readonly TakeCall[]): Promise<readonly Outcome[]> {
    // One statement takes no row twice, and statements that lock rows in one order never wait in a circle.
    const once = [...new Map(calls.map((call) => [call.id, call])).values()].toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const outcomes = new Map<TakeCall, Outcome>();
    const unfit = this.usual === undefined || (await this.tryAll(this.usual, once, outcomes));
    if (unfit) await this.takeFound(once, outcomes);
    return calls.map((call) => outcomes.get(call));
  }

  private async takeFound(calls: readonly TakeCall[], outcomes: Map<TakeCall, Outcome>): Promise<void> {
    const found = await this.table.rows<FreeRow>(this.statements.find(calls));
    const freeById = new Map(found.map(({ id, free }) => [id.toString('hex'), free === 1]));
    const missing = calls.filter(({ id }) => !freeById.has(id));
    const free = calls.filter(({ id }) => freeById.get(id));
    this.usual = usualOf(calls.length, free.length, missing.length);
    await Promise.all([this.tryAll('takeAll', free, outcomes), this.tryAll('insertAll', missing, outcomes)]);
  }

  /** Takes all of the rows, or counts none as taken. Answers whether the statement did not fit some of them. */
  private async tryAll(
    statement: Statement,
    calls: readonly TakeCall[],
    outcomes: Map<TakeCall, Outcome>,
  ): Promise<boolean> {
    if (calls.length === 0) return false;
    try {
      const header = await this.locked.watch(calls, () => this.table.change(this.statements[statement](calls)));
      if (header.affectedRows !== calls.length) return true;
      const tokens = { first: insertIdOf(header), count: TOKENS };
      for (const call of calls) {
        outcomes.set(call, { status: 'granted', remaining: call.ttl, tokens, waiting: undefined });
      }
      return false;
    } catch (error) {
      if (codeOf(error) === 'ER_DUP_ENTRY') return true;
      if (!isOfOneRow(error)) for (const call of calls) outcomes.set(call, { status: 'failed', error });
      return false;
    }
  }
}

function usualOf(all: number, free: number, missing: number): Statement | undefined {
  if (free === all) return 'takeAll';
  return missing === all ? 'insertAll' : undefined;
}
