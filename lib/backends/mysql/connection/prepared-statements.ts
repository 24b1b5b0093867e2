import type { PoolConnection } from 'mysql2';
import { codeOf } from './diagnosis.js';

/** A statement with values of one call. */
export interface PreparableStatement {
  /** With a `?` for each of the values, and the same for all calls. */
  readonly sql: string;
  readonly values: string[];
  /** The statement with its values, which no `?` stands for. */
  text(): string;
}

/** As text, or so that the server can keep it prepared. */
export type Statement = string | PreparableStatement;

/** How a server, or a proxy before it, refuses a prepared statement; each before it runs. */
const REFUSALS: ReadonlySet<string | undefined> = new Set([
  'ER_UNSUPPORTED_PS',
  'ER_UNKNOWN_COM_ERROR',
  'ER_MAX_PREPARED_STMT_COUNT_REACHED',
  // A proxy runs it on another session than the one that prepared it.
  'ER_UNKNOWN_STMT_HANDLER',
  'ER_WRONG_ARGUMENTS',
  'ER_NEED_REPREPARE',
]);

/** How long (ms) statements go as text after a refusal. */
const PAUSE = 60_000;

/**
 * Which statements the server keeps prepared, in place of reading their text each time: on each connection a few that
 * do not depend on names, because the server counts those of all its clients together.
 */
export class PreparedStatements {
  private pausedUntil = -Infinity;

  /** Whether the statement goes prepared. */
  suits(statement: Statement): statement is PreparableStatement {
    return typeof statement !== 'string' && performance.now() >= this.pausedUntil;
  }

  /** Whether the statement was refused because it was prepared: sent as text, it may succeed. */
  refused(error: unknown, { sql }: PreparableStatement, connection: PoolConnection): boolean {
    if (!REFUSALS.has(codeOf(error))) return false;
    this.pausedUntil = performance.now() + PAUSE;
    // mysql2 would send the number that the server does not know again.
    connection.unprepare(sql);
    return true;
  }
}
