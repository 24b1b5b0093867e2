import { setTimeout as sleep } from 'node:timers/promises';
import { HttpStatus, Inject, Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import pg from 'pg';
import { ShopException } from '../http/error-body.js';
import { DATABASE_CONNECTIONS, SETTINGS, type Settings } from '../settings.js';
import { SCHEMA } from './schema.js';

/** Runs SQL: the pool, or the one connection of a transaction. */
export interface Sql {
  query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<pg.QueryResult<Row>>;
}

/** Any number that all processes of the shop share. */
const SCHEMA_LOCK = 726_365;

/** In milliseconds. Without them, a stopped database would block every request for ever. */
const TIME_LIMITS = {
  /** Until a connection is free or made. */
  connectionTimeoutMillis: 10_000,
  /** Until the answer to a statement has arrived. */
  query_timeout: 10_000,
  /** Shorter, so that a healthy server gives up first and releases what the statement waits for. */
  statement_timeout: 9_000,
  /**
   * A process that stands still within a transaction keeps its row locked for at most this time. It is less than the
   * lease of a lock, so that the next holder finds the row free.
   */
  idle_in_transaction_session_timeout: 2_500,
};
const LONGEST_GOODBYE = 1_000;

@Injectable()
export class Database implements Sql, OnModuleInit, OnApplicationShutdown {
  private readonly pool: pg.Pool;

  constructor(@Inject(SETTINGS) { databaseUrl, databaseConnections = DATABASE_CONNECTIONS }: Settings) {
    this.pool = new pg.Pool({ connectionString: databaseUrl, max: databaseConnections, ...TIME_LIMITS });
    this.pool.on('error', () => {});
  }

  /** @throws DatabaseUnavailableException, or the `pg.DatabaseError` of a statement that the server refused */
  async query<Row extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<pg.QueryResult<Row>> {
    try {
      return await this.pool.query<Row>(text, values);
    } catch (error) {
      throw databaseError(error);
    }
  }

  /**
   * Commits what `work` did, all of it or, when it throws, nothing.
   *
   * @throws what `work` throws; of the database, the same as `query`
   */
  async transaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    const connection = await this.connect();
    let broken: Error | undefined;
    const sql: Sql = {
      query: async <Row extends pg.QueryResultRow>(text: string, values: unknown[] = []) => {
        try {
          return await connection.query<Row>(text, values);
        } catch (error) {
          if (!(error instanceof pg.DatabaseError)) broken = error as Error;
          throw databaseError(error);
        }
      },
    };
    // A connection that breaks while no statement runs emits an event, which would otherwise end the process.
    const onError = (error: Error): void => void (broken = error);
    connection.on('error', onError);
    try {
      await sql.query('BEGIN');
      const result = await work(sql);
      await sql.query('COMMIT');
      return result;
    } catch (error) {
      // The server itself undoes what a broken connection has begun.
      if (!broken) await sql.query('ROLLBACK').catch(() => {});
      throw error;
    } finally {
      connection.off('error', onError);
      connection.release(broken);
    }
  }

  /** Several processes of the shop may start at once: one makes the tables while the others wait. */
  async onModuleInit(): Promise<void> {
    await this.transaction(async (sql) => {
      await sql.query('SELECT pg_advisory_xact_lock($1)', [SCHEMA_LOCK]);
      await sql.query(SCHEMA);
    });
  }

  /** Awaits no connection: a server that has stopped never answers. */
  async onApplicationShutdown(): Promise<void> {
    await Promise.race([this.pool.end(), sleep(LONGEST_GOODBYE, undefined, { ref: false })]);
  }

  private async connect(): Promise<pg.PoolClient> {
    try {
      return await this.pool.connect();
    } catch (error) {
      throw databaseError(error);
    }
  }
}

/** The database is down or too slow. It is unknown what the statement has done. */
export class DatabaseUnavailableException extends ShopException {
  constructor(cause: unknown) {
    const message = 'The database does not answer. Try again later.';
    super(HttpStatus.SERVICE_UNAVAILABLE, 'DATABASE_UNAVAILABLE', message, cause);
  }
}

/**
 * SQLSTATE classes that blame the server and not the statement: connections, resources, "operator intervention" (which
 * includes statement_timeout), the system; and the end of a transaction that was idle for too long.
 */
const BLAMES_THE_SERVER = /^(08|53|57|58|25P0[34])/;

/** Turns an error without an answer of the server into a DatabaseUnavailableException. */
function databaseError(error: unknown): unknown {
  if (error instanceof pg.DatabaseError && !BLAMES_THE_SERVER.test(error.code ?? '')) return error;
  return new DatabaseUnavailableException(error);
}
