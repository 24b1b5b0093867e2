import type { AcquireAnswer, Granted } from '../../contracts/lock-backend.js';
import { Timeouts } from '../../timing/clock.js';
import { type Lanes, TurnBatch } from '../batch.js';
import { codeOf } from '../failures.js';
import type { BatchStatements, RowTake } from './batch-statements.js';
import { TOKENS, type LockTable } from './lock-table.js';
import { isOfOneRow, isLockedRow, rowStaysLocked } from './mysql-connection.js';
import { takenOf, type RowStatements } from './row-statements.js';

/** Takes one name. */
interface TakeCall extends RowTake {
  readonly name: string;
  /** Other tokens than those that the clock of the server gives. */
  readonly leastToken: number | undefined;
}

/** What became of a call: the ticket owns the row, its statement failed, or the call must ask alone. */
type Outcome = Granted | { readonly status: 'failed'; readonly error: unknown } | undefined;

/** The statement that takes rows that exist, or the one that makes them. */
type TakeStatement = 'takeAll' | 'insertAll';

/** How many calls one statement carries at most: it keeps the rows of all locked until it is done. */
export const MOST_AT_ONCE = 100;
/** How many batches of one kind are under way while further calls gather. */
export const LANES: Lanes = { lanes: 2 };

/**
 * Takes names. Free ones that callers want in one turn of the event loop are taken in one statement, in place of a
 * transaction for each. A grant counts only where that statement took all of its rows: else, each call asks alone, also
 * for a row that its ticket owns already.
 */
export class LeaseTakes {
  private readonly batches: TurnBatch<TakeCall, AcquireAnswer | Outcome>;
  /** The statement that fitted all rows of the last look: the next batch tries it without one. */
  private usual: TakeStatement | undefined = 'takeAll';

  constructor(
    private readonly table: LockTable<RowStatements>,
    private readonly statements: BatchStatements,
    private readonly locked: LockedRows,
  ) {
    this.batches = new TurnBatch((...batch) => this.send(...batch), MOST_AT_ONCE, LANES);
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
      table.rows(statements.lastOwner(call.id)),
      table.change(statements.mark(call)),
    ]);
    return { status: 'busy', name, owner: last?.owner ?? '', remaining: taken.remaining };
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
    const found = await this.table.rows(this.statements.find(calls));
    const freeById = new Map(found.map(({ id, free }) => [id, free === 1]));
    const missing = calls.filter(({ id }) => !freeById.has(id));
    const free = calls.filter(({ id }) => freeById.get(id));
    this.usual = usualOf(calls.length, free.length, missing.length);
    await Promise.all([this.tryAll('takeAll', free, outcomes), this.tryAll('insertAll', missing, outcomes)]);
  }

  /** Takes all of the rows, or counts none as taken. Answers whether the statement did not fit some of them. */
  private async tryAll(
    statement: TakeStatement,
    calls: readonly TakeCall[],
    outcomes: Map<TakeCall, Outcome>,
  ): Promise<boolean> {
    if (calls.length === 0) return false;
    try {
      const header = await this.locked.watch(calls, () => this.table.change(this.statements[statement](calls)));
      if (header.affectedRows !== calls.length) return true;
      const tokens = { first: header.insertId, count: TOKENS };
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

function usualOf(all: number, free: number, missing: number): TakeStatement | undefined {
  if (free === all) return 'takeAll';
  return missing === all ? 'insertAll' : undefined;
}

/** A statement that is not answered for this long (ms), while the server answers later ones, waits for a row. */
const SLOW = 300;
/** How long (ms) a row goes apart after a statement on it has waited. */
const APART = 10_000;
/** How many rows are noted at most; of more, the newest. */
const MOST_ROWS = 1_000;
/** How many statements on one of them may wait in this process. */
const MOST_WAITING = 8;

interface RowApart {
  until: number;
  /** The end of the last of its statements, which take turns: all of them together use one connection. */
  last: Promise<unknown>;
  waiting: number;
}

/** The statements of this process that are not answered yet on a row. */
interface RowUnderWay {
  statements: number;
  /** When the last of those that were answered meanwhile had its answer. */
  answered: number;
}

/**
 * The rows that a transaction of somebody else may keep locked: a statement on one of them would delay the other rows
 * of its batch. All rows of a statement that waited are noted, and each of them until a statement of its own is
 * answered at once, or nobody has asked for it for a while. A row that the statements of this process pass on to each
 * other is none of them, however long each waits for those before it.
 */
export class LockedRows {
  private readonly rows = new Map<string, RowApart>();
  private readonly underWay = new Map<string, RowUnderWay>();
  private readonly timeouts = new Timeouts({ countsStandstills: false });
  /** When the newest of the statements was sent that are answered. */
  private answered = -Infinity;

  /** Whether the row goes in a statement of its own. */
  has(id: string): boolean {
    const row = this.rows.get(id);
    return row !== undefined && row.until > performance.now();
  }

  /** Sends a statement on these rows, and notes them where it waits for one of them. */
  watch<Answer>(rows: readonly { readonly id: string }[], send: () => Promise<Answer>): Promise<Answer> {
    const apart = rows.length === 1 && this.rows.get((rows[0] as { id: string }).id);
    if (!apart) return this.watchAtOnce(rows, send);
    if (apart.waiting >= MOST_WAITING) return Promise.reject(rowStaysLocked(apart.waiting));
    apart.waiting += 1;
    const sent = apart.last.then(() => {
      apart.waiting -= 1;
      return this.watchAtOnce(rows, send);
    });
    apart.last = sent.catch(() => {});
    return sent;
  }

  /** As `watch`, but does not wait for the statements before it: their connection may be dead, and a lease ends. */
  async watchAtOnce<Answer>(rows: readonly { readonly id: string }[], send: () => Promise<Answer>): Promise<Answer> {
    const sentAt = performance.now();
    const slow = this.timeouts.start(SLOW, {
      // Where it answers none of the later ones either, the server is slow, and more statements would not help.
      expire: () =>
        this.answered - sentAt > SLOW / 2 && this.note(rows.filter(({ id }) => this.standsSince(id, sentAt))),
    });
    this.begin(rows);
    try {
      const answer = await send();
      this.answered = Math.max(this.answered, sentAt);
      this.end(rows, performance.now());
      if (slow.leave() && rows.length === 1) this.rows.delete((rows[0] as { id: string }).id);
      return answer;
    } catch (error) {
      this.end(rows);
      slow.leave();
      if (isLockedRow(error)) this.note(rows);
      throw error;
    }
  }

  private begin(rows: readonly { readonly id: string }[]): void {
    for (const { id } of rows) {
      const row = this.underWay.get(id);
      if (row) row.statements += 1;
      else this.underWay.set(id, { statements: 1, answered: -Infinity });
    }
  }

  private end(rows: readonly { readonly id: string }[], answered = -Infinity): void {
    for (const { id } of rows) {
      const row = this.underWay.get(id);
      if (!row) continue;
      row.answered = Math.max(row.answered, answered);
      row.statements -= 1;
      if (row.statements === 0) this.underWay.delete(id);
    }
  }

  /** Whether no statement on the row was answered since then. */
  private standsSince(id: string, since: number): boolean {
    return (this.underWay.get(id)?.answered ?? -Infinity) <= since;
  }

  private note(rows: readonly { readonly id: string }[]): void {
    const now = performance.now();
    for (const { id } of rows) {
      const row = this.rows.get(id) ?? { until: 0, last: Promise.resolve(), waiting: 0 };
      row.until = now + APART;
      this.rows.delete(id);
      this.rows.set(id, row);
    }
    for (const [id, { until }] of this.rows) {
      if (this.rows.size <= MOST_ROWS && until > now) return;
      this.rows.delete(id);
    }
  }
}
