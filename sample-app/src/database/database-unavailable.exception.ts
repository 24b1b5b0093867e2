import { HttpException, HttpStatus } from '@nestjs/common';
import pg from 'pg';

/** The database is away, or too slow. What the statement has done is unknown. */
export class DatabaseUnavailableException extends HttpException {
  constructor(cause: unknown) {
    const status = HttpStatus.SERVICE_UNAVAILABLE;
    const message = 'The database does not answer. Try again later.';
    super({ statusCode: status, code: 'DATABASE_UNAVAILABLE', message }, status, { cause });
  }
}

/**
 * Classes of SQLSTATE that blame the server and not the statement: connections, resources, "the operator intervened"
 * (which statement_timeout is, too), the system; and the end of a transaction that was idle for too long.
 */
const BLAMES_THE_SERVER = /^(08|53|57|58|25P0[34])/;

/** What a caller is told: an error that the server did not send says that there was no answer. */
export function databaseError(error: unknown): unknown {
  if (error instanceof pg.DatabaseError && !BLAMES_THE_SERVER.test(error.code ?? '')) return error;
  return new DatabaseUnavailableException(error);
}
