import {
  type RowTicket,
  MICROSECONDS,
  LEAST_TOKEN,
  TOKENS,
  oneOf,
  characters,
  bytes,
  after,
  NOW,
  microseconds,
  until,
  intervalOf,
} from './lock-table.js';
import { hex, number, text, type Query } from './mysql-connection.js';

/** A row that a ticket is to take. */
export interface RowTake extends RowTicket {
  /** What the column shows to people. */
  readonly shown: string;
  readonly ttl: number;
}

interface FreeRow {
  /** In hexadecimal digits, as for the other rows. */
  readonly id: string;
  /** 1 where `takeAll` would take it. */
  readonly free: number;
}

export interface EndedRow {
  readonly id: string;
  readonly owner: string;
  /** 1 where the lease runs. */
  readonly held: number;
  /** When the lease ended or will end: the time in microseconds. */
  readonly ends: number;
  readonly token: number;
}

export interface HeldRow {
  readonly id: string;
  readonly owner: string;
  readonly remaining: number;
  /** Processes that wait, the owner's among them; empty where there is none. */
  readonly waiter1: string;
  readonly waiter2: string;
}

/** One statement gives all of its rows the same tokens, at the clock of the server in microseconds at least. */
const FIRST_TOKEN = `((GREATEST(${MICROSECONDS}, ${LEAST_TOKEN}) | 1) + 1)`;
const RESERVED = `LAST_INSERT_ID(${FIRST_TOKEN}) + ${TOKENS - 1}`;

/**
 * The statements on several rows at once. They find the rows by their keys and lock no others. Rows that are taken or
 * freed always change, so that the count of affected rows is the same with and without the flag FOUND_ROWS.
 */
export class BatchStatements {
  /** Without the hint, the server reads a small table as a whole for a list of keys, and locks all of it. */
  private readonly byKey: string;

  constructor(private readonly table: string) {
    this.byKey = `${table} FORCE INDEX (PRIMARY)`;
  }

  /** Which of the rows there are, and which of them are free. A plain read, which proves nothing. */
  find(rows: readonly RowTicket[]): Query<FreeRow> {
    return {
      sql: `SELECT id, ${free(rows)} AS free FROM ${this.byKey} WHERE ${oneOf(idsOf(rows))}`,
      columns: { id: hex, free: number },
    };
  }

  /** Takes those rows that are free: as many are affected. The first token of each is in `insertId`. */
  takeAll(rows: readonly RowTake[]): string {
    return `UPDATE ${this.byKey} SET token = ${RESERVED},
expires_at = GREATEST(expires_at, ${afterEach(rows)}), owner = ${ticketOf(rows)}
WHERE ${oneOf(idsOf(rows))} AND ${free(rows)}`;
  }

  /** Makes the rows, and takes them; fails where one exists. The first token of each is in `insertId`. */
  insertAll(rows: readonly RowTake[]): string {
    const values = rows.map(
      ({ id, shown, ticket, ttl }) => `(x'${id}', ${characters(shown)}, ${bytes(ticket)}, ${after(ttl)}, ${RESERVED})`,
    );
    return `INSERT INTO ${this.table} (id, name, owner, expires_at, token) VALUES ${values.join(',\n')}`;
  }

  /** Frees those rows that their tickets own; the time in microseconds is in `insertId`. */
  freeAll(rows: readonly RowTicket[]): string {
    return `UPDATE ${this.byKey} SET owner = '', expires_at = ${NOW}, token = token + 0 * LAST_INSERT_ID(${MICROSECONDS})
WHERE ${owned(rows)}`;
  }

  /** Who owns the rows or owned them last. Locks them for a moment, so that no replica can answer. */
  ended(rows: readonly RowTicket[]): Query<EndedRow> {
    return {
      sql: `SELECT id, owner, token, expires_at > ${NOW} AS held, ${microseconds('expires_at')} AS ends
FROM ${this.byKey} WHERE ${oneOf(idsOf(rows))} LOCK IN SHARE MODE`,
      columns: { id: hex, owner: text, token: number, held: number, ends: number },
    };
  }

  /** Lets the leases of those rows that their tickets own run for at least `ttl` ms from now. */
  prolong(rows: readonly RowTicket[], ttl: number): string {
    return `UPDATE ${this.byKey} SET expires_at = GREATEST(expires_at, ${after(ttl)}) WHERE ${owned(rows)}`;
  }

  /** The rows whose lease runs. Locks them for a moment, so that no replica can answer. */
  held(rows: readonly RowTicket[]): Query<HeldRow> {
    return {
      sql: `SELECT id, owner, ${until('expires_at')} AS remaining,
IF(waiter1_until > ${NOW}, waiter1, '') AS waiter1, IF(waiter2_until > ${NOW}, waiter2, '') AS waiter2
FROM ${this.byKey} WHERE ${oneOf(idsOf(rows))} AND expires_at > ${NOW} LOCK IN SHARE MODE`,
      columns: { id: hex, owner: text, remaining: number, waiter1: text, waiter2: text },
    };
  }
}

function idsOf(rows: readonly RowTicket[]): readonly string[] {
  return rows.map(({ id }) => id);
}

function ticketOf(rows: readonly RowTicket[]): string {
  return ofEach(rows, ({ ticket }) => bytes(ticket));
}

/** The value of that of the rows which has the key. */
function ofEach<Row extends { readonly id: string }>(rows: readonly Row[], valueOf: (row: Row) => string): string {
  return `ELT(FIELD(id, ${rows.map(({ id }) => `x'${id}'`).join(', ')}), ${rows.map(valueOf).join(', ')})`;
}

/** The `ttl` of each row from now. */
function afterEach(rows: readonly { readonly id: string; readonly ttl: number }[]): string {
  const [{ ttl }] = rows as [(typeof rows)[number]];
  if (rows.every((row) => row.ttl === ttl)) return after(ttl);
  return `${NOW} + INTERVAL CAST(${ofEach(rows, (row) => intervalOf(row.ttl))} AS SIGNED) MICROSECOND`;
}

/** The ticket owns the row, or nobody does; nobody waits for it, and the clock has passed its tokens. */
function free(rows: readonly RowTicket[]): string {
  return `(expires_at <= ${NOW} OR owner = ${ticketOf(rows)}) AND token < ${FIRST_TOKEN}
AND waiter1_until <= ${NOW} AND waiter2_until <= ${NOW}`;
}

function owned(rows: readonly RowTicket[]): string {
  const pairs = rows.map(({ id, ticket }) => `(x'${id}', ${bytes(ticket)})`);
  return `${oneOf(idsOf(rows))} AND (id, owner) IN (${pairs.join(', ')}) AND expires_at > ${NOW}`;
}
