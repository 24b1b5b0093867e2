import { createHash } from 'node:crypto';
import type { LockStore } from '../../contracts/lock-backend.js';
import { codeOf } from '../failures.js';
import { Sweeper } from '../sweeper.js';
import type { Header, Query } from './mysql-connection.js';
import type { MysqlLink, Statement } from './mysql-link.js';
import type { LockTableSettings } from './mysql-options.js';

/** The statements that every table needs. */
export interface TableStatements {
  create(): string;
  /** The keys of at most `most` rows that nobody uses or has used for `age` ms. A plain read: it locks no row. */
  unused(age: number, most: number): Query<{ id: string }>;
  delete(ids: readonly string[], age: number): string;
}

/** How many unused rows are deleted at once. */
const SWEPT_AT_ONCE = 500;
/** The longest pause (ms) between two sweeps. */
const LONGEST_PAUSE = 600_000;

/** The table of one backend: made at its first use, and swept of rows that nobody uses. */
export class LockTable<Statements extends TableStatements> {
  private creating: Promise<void> | undefined;
  private readonly sendByPool = (statement: Statement) => this.link.change(statement);
  readonly sweeper: Sweeper;

  constructor(
    private readonly link: MysqlLink,
    readonly statements: Statements,
    private readonly settings: Omit<LockTableSettings, 'table'>,
  ) {
    this.sweeper = new Sweeper(link, Math.min(settings.keepRows, LONGEST_PAUSE), () => this.deleteSome());
  }

  /** Runs a statement that changes rows, on any connection or by `send`; makes the table first where it is missing. */
  async change<Sent extends Statement>(
    statement: Sent,
    send: (statement: Sent) => Promise<Header> = this.sendByPool,
  ): Promise<Header> {
    try {
      return await send(statement);
    } catch (error) {
      if (codeOf(error) !== 'ER_NO_SUCH_TABLE' || !this.settings.createTable) throw error;
      await this.create();
      return send(statement);
    }
  }

  /** The rows of a query; none where the table is missing. */
  async rows<Row>(query: Query<Row>): Promise<readonly Row[]> {
    try {
      return await this.link.rows(query);
    } catch (error) {
      if (codeOf(error) !== 'ER_NO_SUCH_TABLE' || !this.settings.createTable) throw error;
      return [];
    }
  }

  /**
   * Takes and frees the trial name, whose key is `id`, to see whether the user may do all that locks need. That is also
   * to delete rows: the sweeps would fail later, unseen.
   */
  async start(store: Pick<LockStore, 'acquire' | 'release'>, id: string): Promise<void> {
    const trial = { name: TRIAL, ticket: `${TRIAL}:${process.pid}` };
    const { status } = await store.acquire({ ...trial, ttl: 1_000 });
    if (status === 'granted') await store.release(trial);
    await this.change(this.statements.delete([id], this.settings.keepRows));
  }

  private async create(): Promise<void> {
    this.creating ??= this.link.change(this.statements.create()).then(() => {});
    try {
      await this.creating;
    } finally {
      this.creating = undefined;
    }
  }

  private async deleteSome(): Promise<boolean> {
    const { statements, settings } = this;
    const unused = await this.rows(statements.unused(settings.keepRows, SWEPT_AT_ONCE));
    const ids = unused.map(({ id }) => id);
    if (ids.length > 0) await this.link.change(statements.delete(ids, settings.keepRows));
    return ids.length === SWEPT_AT_ONCE;
  }
}

/** A name that does not occur. */
export const TRIAL = 'nest-redis-lock:start';

/** A row, and the ticket that owns it or is to own it. */
export interface RowTicket {
  /** 64 hexadecimal digits. */
  readonly id: string;
  readonly ticket: string;
}

/**
 * The key of a name's row: 64 lower-case hexadecimal digits. Names differ in case, length and trailing blanks, all of
 * which a text column or `GET_LOCK` could ignore or refuse.
 */
export function rowIdOf(prefix: string | undefined, name: string): string {
  return hashOf(['lock', prefix ?? null, name]);
}

/**
 * The name for `GET_LOCK`, which is also the key of the row of its tokens. The server has one space of names for all of
 * its databases: those of another one, such as a copy for tests, must not exclude these.
 */
export function getLockNameOf(database: string, prefix: string | undefined, name: string): string {
  return hashOf(['lock', prefix ?? null, name, database]);
}

/** The key of the row that keeps the label of a process. */
export function labelIdOf(prefix: string | undefined, process: string): string {
  return hashOf(['label', prefix ?? null, process]);
}

// What the statements on the tables are written with.

/** The clock of the server, in UTC; the same value everywhere in one statement. */
export const NOW = 'UTC_TIMESTAMP(6)';
/** The same clock in microseconds. */
export const MICROSECONDS = microseconds(NOW);
/** Tokens are above this, and milliseconds of remaining lease below it: one number says which of the two it is. */
export const LEAST_TOKEN = 2 ** 50;
/** How many tokens are reserved at once for the callers of one process. */
export const TOKENS = 128;

/**
 * Moves a token beyond a range of `TOKENS` that begins above `token`, at the clock of the server in microseconds at
 * least: so tokens rise also after the row was deleted. The first token is even, and `bit` is added to it in the
 * answer.
 */
export function reserve(token: string, leastToken: number, bit: string): string {
  const least = Math.max(LEAST_TOKEN, leastToken - 1);
  return `LAST_INSERT_ID((GREATEST(${token}, ${MICROSECONDS}, ${least}) | 1) + 1 + (${bit})) + ${TOKENS - 1}`;
}

/** The longest time (ms) that is added to a DATETIME, whose last year is 9999. */
const LONGEST_INTERVAL = 1_000 * 365 * 86_400_000;

/** `ms` from now. */
export function after(ms: number): string {
  return `${NOW} + INTERVAL ${intervalOf(ms)} MICROSECOND`;
}

/** Microseconds that can be added to a time. */
export function intervalOf(ms: number): string {
  return `${Math.min(ms, LONGEST_INTERVAL)}000`;
}

/** Whole milliseconds until the time in `column`. */
export function until(column: string): string {
  return `TIMESTAMPDIFF(MICROSECOND, ${NOW}, ${column}) DIV 1000`;
}

/** The time in `column` as microseconds. */
export function microseconds(column: string): string {
  return `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${column})`;
}

/** The row of one of the keys. */
export function oneOf(ids: readonly string[]): string {
  return `id IN (${ids.map((id) => `x'${id}'`).join(', ')})`;
}

/**
 * Whether the time in `column` was `age` ms ago. A row with a token that the clock has not reached yet stays, so that
 * the tokens of its successor are larger.
 */
export function unusedFor(age: number, column: string): string {
  return `${column} <= ${NOW} - INTERVAL ${age}000 MICROSECOND AND token < ${MICROSECONDS}`;
}

const PLAIN = /^[\w:.-]*$/;

/** Text as a literal that no mode of the server reads differently, such as NO_BACKSLASH_ESCAPES. */
export function bytes(text: string): string {
  return isPlain(text) ? `'${text}'` : `x'${Buffer.from(text).toString('hex')}'`;
}

/** Whether the text is the same inside quotes in every mode and character set. */
export function isPlain(text: string): boolean {
  return PLAIN.test(text);
}

/** The first 255 characters, which is what the column takes. */
export function characters(text: string): string {
  return `_utf8mb4 x'${Buffer.from(text.slice(0, 255)).toString('hex')}'`;
}

function hashOf(parts: readonly (string | null)[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}
