import { Timeouts } from '../../../timing/timeouts.js';
import { isLockedRow, rowStaysLocked } from '../connection/diagnosis.js';

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
