import { HttpException, HttpStatus } from '@nestjs/common';
import pg from 'pg';

/** The database is down or too slow. It is unknown what the statement has done. */
export class DatabaseUnavailableException extends HttpException {
  constructor(cause: unknown) {
    const status = HttpStatus.SERVICE_UNAVAILABLE;
    const message = 'The database does not answer. Try again later.';
    super({ statusCode: status, code: 'DATABASE_UNAVAILABLE', message }, status, { cause });
  }
}

/**
 * SQLSTATE classes that blame the server and not the statement: connections, resources, "operator intervention" (which
 * includes statement_timeout), the system; and the end of a transaction that was idle for too long.
 */
const BLAMES_THE_SERVER = /^(08|53|57|58|25P0[34])/;

/** Turns an error without an answer of the server into a DatabaseUnavailableException. */
export function databaseError(error: unknown): unknown {
  if (error instanceof pg.DatabaseError && !BLAMES_THE_SERVER.test(error.code ?? '')) return error;
  return new DatabaseUnavailableException(error);
}
