import type { TokenRange } from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import {
  after,
  bytes,
  characters,
  LEAST_TOKEN,
  NOW,
  oneOf,
  reserve,
  TOKENS,
  until,
  unusedFor,
  intervalOf,
  isPlain,
  type TableStatements,
  type RowTicket,
} from './lock-table.js';
import { number, text, type Header, type Query } from './mysql-connection.js';
import type { Statement } from './mysql-link.js';

interface StateRow {
  readonly owner: string;
  /** Milliseconds until the lease ends; 0 or less where it has ended. */
  readonly remaining: number;
  readonly token: number;
  readonly name: string;
}

/**
 * The statements on the table: for each name one row with its owner, the end of its lease, the newest reserved token
 * and two processes that wait. Each statement is a transaction of its own: no row stays locked while a client thinks.
 *
 * The count of affected rows depends on the flag FOUND_ROWS of the client, so that the answer is in `insertId`. An
 * assignment sees the columns that those before it have changed, or, in the mode SIMULTANEOUS_ASSIGNMENT of MariaDB, as
 * they were: the conditions and their order give the same in both.
 */
export class RowStatements implements TableStatements {
  private readonly taking: RowTemplate;
  private readonly freeing: RowTemplate;

  constructor(private readonly table: string) {
    this.taking = this.takingAbove(0);
    this.freeing = new RowTemplate(
      `UPDATE ${table} SET owner = '', expires_at = ${NOW} WHERE id = :id AND owner = :ticket AND expires_at > ${NOW}`,
    );
  }

  create(): string {
    return `CREATE TABLE IF NOT EXISTS ${this.table} (
  id BINARY(32) NOT NULL PRIMARY KEY,
  name VARCHAR(255) NOT NULL,
  owner VARBINARY(255) NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  token BIGINT NOT NULL,
  waiter1 VARBINARY(255) NOT NULL DEFAULT '',
  waiter1_until DATETIME(6) NOT NULL DEFAULT '1970-01-01',
  waiter2 VARBINARY(255) NOT NULL DEFAULT '',
  waiter2_until DATETIME(6) NOT NULL DEFAULT '1970-01-01'
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`;
  }

  /** Takes the name where its lease has ended or the ticket owns it. */
  take({ id, ticket }: RowTicket, name: string, ttl: number, leastToken?: number): Statement {
    const values = { id, ticket, name, ttl };
    // Each least token makes another statement, which the server is not to keep.
    return leastToken === undefined ? this.taking.with(values) : this.takingAbove(leastToken).text(values);
  }

  /** Notes for a moment that the process of the ticket waits. */
  mark({ id, ticket }: RowTicket): string {
    return `UPDATE ${this.table} SET ${markWaiting(ticket)} WHERE id = x'${id}'`;
  }

  /** Frees the row: a row is affected where the ticket owned it. */
  free(row: RowTicket): Statement {
    return this.freeing.with(row);
  }

  /** Lets the lease end `rest` ms from now, or earlier. */
  shorten({ id, ticket }: RowTicket, rest: number): string {
    return `UPDATE ${this.table} SET expires_at = LEAST(expires_at, ${after(rest)}), token = token + 0 * LAST_INSERT_ID(1)
WHERE ${owned(id, ticket)}`;
  }

  /** Reserves further tokens for the ticket. */
  mint({ id, ticket }: RowTicket, leastToken: number): string {
    return `UPDATE ${this.table} SET token = ${reserve('token', leastToken, '0')} WHERE ${owned(id, ticket)}`;
  }

  /** The ticket that owned the name last; empty where it has released it. */
  lastOwner(id: string): Query<Pick<StateRow, 'owner'>> {
    return { sql: `SELECT owner FROM ${this.table} WHERE id = x'${id}'`, columns: { owner: text } };
  }

  /** The row of a lease that runs. As text, the name would come in the characters of the connection. */
  state(id: string): Query<StateRow> {
    return {
      sql: `SELECT CAST(name AS BINARY) AS name, owner, token, ${until('expires_at')} AS remaining
FROM ${this.table} WHERE id = x'${id}' AND expires_at > ${NOW}`,
      columns: { name: text, owner: text, token: number, remaining: number },
    };
  }

  /** Keeps a text under the key for `ttl` ms. */
  keepText(id: string, kept: string, ttl: number): string {
    return `INSERT INTO ${this.table} (id, name, owner, expires_at, token)
VALUES (x'${id}', ${characters(kept)}, '', ${after(ttl)}, 0)
ON DUPLICATE KEY UPDATE name = ${characters(kept)}, expires_at = ${after(ttl)}`;
  }

  dropText(id: string): string {
    return `DELETE FROM ${this.table} WHERE id = x'${id}'`;
  }

  unused(age: number, most: number): Query<{ id: string }> {
    return {
      sql: `SELECT HEX(id) AS id FROM ${this.table} WHERE ${unusedFor(age, 'expires_at')} LIMIT ${most}`,
      columns: { id: text },
    };
  }

  delete(ids: readonly string[], age: number): string {
    return `DELETE FROM ${this.table} WHERE ${oneOf(ids)} AND ${unusedFor(age, 'expires_at')}`;
  }

  private takingAbove(leastToken: number): RowTemplate {
    const free = `(owner = :ticket OR expires_at <= ${NOW})`;
    const ends = `${NOW} + INTERVAL :ttl MICROSECOND`;
    return new RowTemplate(`INSERT INTO ${this.table} (id, name, owner, expires_at, token)
VALUES (:id, :name, :ticket, ${ends}, ${reserve('0', leastToken, '0')})
ON DUPLICATE KEY UPDATE
token = IF(${free}, ${reserve('token', leastToken, othersWait(':process'))}, token + 0 * LAST_INSERT_ID(${until('expires_at')})),
owner = IF(${free}, :ticket, owner),
expires_at = IF(${free}, GREATEST(expires_at, ${ends}), expires_at)`);
  }
}

/** What `take` answered: the tokens and whether others wait, or the milliseconds left of the owner's lease. */
export function takenOf({ insertId: answer }: Header): { tokens: TokenRange; waiting: number } | { remaining: number } {
  if (answer < LEAST_TOKEN) return { remaining: answer };
  const waiting = answer % 2;
  return { tokens: { first: answer - waiting, count: TOKENS }, waiting };
}

/** A statement with values of one call. */
export class PreparableStatement {
  constructor(
    /** With a `?` for each of the values, and the same for all calls. */
    readonly sql: string,
    private readonly template: RowTemplate,
    private readonly given: RowValues,
  ) {}

  get values(): string[] {
    return this.template.valuesOf(this.given);
  }

  /** The statement with its values, which no `?` stands for. */
  text(): string {
    return this.template.text(this.given);
  }
}

/** A statement on one row; `:id`, `:name`, `:ticket`, `:process` and `:ttl` (in microseconds) stand for values. */
class RowTemplate {
  private readonly parts: readonly string[];
  private readonly marked: readonly Marked[];
  private readonly sql: string;

  constructor(template: string) {
    const split = template.split(/:(id|name|ticket|process|ttl)\b/);
    this.parts = split.filter((_part, index) => index % 2 === 0);
    this.marked = split.filter((_part, index) => index % 2 === 1).map((marker) => MARKED[marker] as Marked);
    this.sql = this.filled(({ parameter }) => parameter);
  }

  with(values: RowValues): Statement {
    if (!isPlain(values.ticket)) return this.text(values);
    return new PreparableStatement(this.sql, this, values);
  }

  valuesOf(values: RowValues): string[] {
    return this.marked.map(({ value }) => value(values));
  }

  text(values: RowValues): string {
    return this.filled(({ literal }) => literal(values));
  }

  private filled(sqlOf: (marked: Marked) => string): string {
    let sql = this.parts[0] as string;
    for (const [index, marked] of this.marked.entries()) sql += sqlOf(marked) + (this.parts[index + 1] as string);
    return sql;
  }
}

interface RowValues extends RowTicket {
  readonly name?: string;
  readonly ttl?: number;
}

interface Marked {
  readonly literal: (values: RowValues) => string;
  /** The SQL that reads the parameter. */
  readonly parameter: string;
  /** ASCII, which is the same in every character set. */
  readonly value: (values: RowValues) => string;
}

const MARKED: Readonly<Record<string, Marked>> = {
  id: { literal: ({ id }) => `x'${id}'`, parameter: 'UNHEX(?)', value: ({ id }) => id },
  name: {
    literal: ({ name = '' }) => characters(name),
    parameter: 'CONVERT(UNHEX(?) USING utf8mb4)',
    value: ({ name = '' }) => Buffer.from(name.slice(0, 255)).toString('hex'),
  },
  ticket: { literal: ({ ticket }) => bytes(ticket), parameter: '?', value: ({ ticket }) => ticket },
  process: {
    literal: ({ ticket }) => bytes(processOf(ticket)),
    parameter: '?',
    value: ({ ticket }) => processOf(ticket),
  },
  ttl: { literal: ({ ttl = 0 }) => intervalOf(ttl), parameter: '?', value: ({ ttl = 0 }) => intervalOf(ttl) },
};

/** How long (ms) a process counts as waiting after its last try. */
const WAITER_TTL = 500;

/**
 * Assignments that note that the process of the ticket waits: in its own mark, else in one that has ended; else two
 * other processes wait already.
 */
function markWaiting(ticket: string): string {
  const me = bytes(processOf(ticket));
  const first = `(waiter1 = ${me} OR (waiter2 <> ${me} AND waiter1_until <= ${NOW}))`;
  const second = `(NOT ${first} AND (waiter2 = ${me} OR waiter2_until <= ${NOW}))`;
  return `waiter1 = IF(${first}, ${me}, waiter1),
waiter1_until = IF(${first}, ${after(WAITER_TTL)}, waiter1_until),
waiter2 = IF(${second}, ${me}, waiter2),
waiter2_until = IF(${second}, ${after(WAITER_TTL)}, waiter2_until)`;
}

/** Whether a process other than `me` waits for the row's name: of two marks, it can own one only. */
function othersWait(me: string): string {
  return `(waiter1 <> ${me} AND waiter1_until > ${NOW}) OR (waiter2 <> ${me} AND waiter2_until > ${NOW})`;
}

function owned(id: string, ticket: string): string {
  return `id = x'${id}' AND owner = ${bytes(ticket)} AND expires_at > ${NOW}`;
}
