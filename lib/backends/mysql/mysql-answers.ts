/**
 * How a statement asks for its rows: as the bytes that the server sent. By the options of an application, numbers come
 * as text or as BigInt, and its `typeCast` may give text for bytes. Only a function of the statement precedes that one.
 */
export const ROWS = {
  typeCast: (column: { buffer(): Buffer | null }) => column.buffer(),
  rowsAsArray: false,
  nestTables: false,
};

/** Reads the bytes of a column; `null` is what the database calls NULL. */
type Read<Value> = (bytes: Buffer | null) => Value;

/** A statement that answers rows, and how their columns are read. */
export interface Query<Row> {
  readonly sql: string;
  readonly columns: { readonly [Name in keyof Row]: Read<Row[Name]> };
}

/** What the server answers to a statement that changes rows. */
export interface Header {
  readonly affectedRows: number;
  readonly insertId: number;
}

export const text: Read<string> = (bytes) => present(bytes).toString();

export const hex: Read<string> = (bytes) => present(bytes).toString('hex');

export const number: Read<number> = (bytes) => numberOf(text(bytes));

export function orNull<Value>(read: Read<Value>): Read<Value | null> {
  return (bytes) => (bytes === null ? null : read(bytes));
}

/** @throws Error for an answer that it cannot read: a lock counts as nobody's only where the server says so */
export function readRows<Row>(answer: unknown, columns: Query<Row>['columns']): readonly Row[] {
  if (!Array.isArray(answer)) throw new Error('the server answered no rows to a query');
  const reads = Object.entries<Read<unknown>>(columns);
  return answer.map(
    (row: Record<string, unknown>) =>
      Object.fromEntries(reads.map(([name, read]) => [name, readColumn(row[name], name, read)])) as Row,
  );
}

/** @throws Error for an answer that it cannot read */
export function readHeader(answer: unknown): Header {
  const { affectedRows, insertId } = answer as Record<keyof Header, unknown>;
  // Of a connection with `bigNumberStrings`, large ones are text.
  return { affectedRows: numberOf(affectedRows), insertId: numberOf(insertId) };
}

/** Server status: the connection is inside a transaction. */
const IN_TRANSACTION = 1;

/** A lock that was taken inside a transaction of the application would end with its rollback, and a read may be old. */
export function foreignTransaction(header: unknown): Error | undefined {
  const { serverStatus } = header as { serverStatus?: unknown };
  if (typeof serverStatus === 'number' && (serverStatus & IN_TRANSACTION) === 0) return undefined;
  return new Error(
    'a connection of the pool is inside a transaction; commit before you release a connection, and leave autocommit on',
  );
}

function readColumn(value: unknown, name: string, read: Read<unknown>): unknown {
  try {
    if (value === null || Buffer.isBuffer(value)) return read(value);
  } catch (error) {
    throw new Error(`the server answered "${name}" with ${(error as Error).message}`);
  }
  throw new Error(`the driver gave "${name}" as ${typeof value}, and not as the bytes that were asked for`);
}

function present(bytes: Buffer | null): Buffer {
  if (bytes === null) throw new Error('NULL');
  return bytes;
}

function numberOf(value: unknown): number {
  const read = typeof value === 'string' && value.trim() === '' ? NaN : Number(value ?? NaN);
  if (!Number.isFinite(read)) throw new Error(`"${String(value)}", which is no number`);
  return read;
}
