import type { Row } from '../../connection/postgres-link.js';
import type { Statement } from '../../connection/statement.js';
import type { LeaseTable } from '../lease-table.js';
import { inOrder } from '../lock-key.js';

/**
 * How many calls one statement carries at most. They hold the rows of their locks until all are done; and while the
 * server runs the statement of one half of the callers, this process can serve the other half.
 */
export const MOST = 50;
/** How many statements of one kind are under way while further calls gather. */
export const LANES = { lanes: 2 };

/** One call for one name. */
export interface LockCall {
  readonly key: string;
  readonly name: string;
  readonly ticket: string;
}

export type Failed = (error: unknown) => void;

/** Reads what a statement takes beside the keys and the tickets. */
export type Column<Call> = (call: Call) => unknown;

/**
 * Sends the keys, the tickets and further `columns` of the calls, in the order of the keys, to a statement whose rows
 * begin with the number of their call. Answers a row for each call, in the order of the calls, or `undefined` where
 * there is none.
 */
export function askTogether<Call extends LockCall>(
  table: LeaseTable,
  statement: Statement,
  calls: readonly Call[],
  columns: readonly Column<Call>[],
  answered: (rows: readonly (Row | undefined)[]) => void,
  failed: Failed,
): void {
  const ordered = inOrder(calls);
  table.ask(
    statement,
    valuesOf(ordered, columns),
    ({ rows }) => {
      const rowOf = new Map<Call, Row>();
      for (const [number, ...row] of rows) rowOf.set(ordered[Number(number) - 1] as Call, row);
      answered(calls.map((call) => rowOf.get(call)));
    },
    failed,
  );
}

/** An array for each parameter of a statement. */
export function valuesOf<Call extends LockCall>(
  calls: readonly Call[],
  columns: readonly Column<Call>[],
): readonly unknown[][] {
  return [({ key }: Call) => key, ({ ticket }: Call) => ticket, ...columns].map((column) => calls.map(column));
}
