import { Inject, Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import pg from 'pg';
import { DATABASE_CONNECTIONS, SETTINGS, type Settings } from '../settings.js';
import { SCHEMA } from './schema.js';

/** What runs SQL: the pool, or the one connection of a transaction. */
export interface Sql {
  query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<pg.QueryResult<Row>>;
}

/** Any number, so long as all processes of the shop use the same. */
const SCHEMA_LOCK = 726_365;

@Injectable()
export class Database implements Sql, OnModuleInit, OnApplicationShutdown {
  private readonly pool: pg.Pool;

  constructor(@Inject(SETTINGS) { databaseUrl, databaseConnections = DATABASE_CONNECTIONS }: Settings) {
    this.pool = new pg.Pool({ connectionString: databaseUrl, max: databaseConnections });
    this.pool.on('error', () => {});
  }

  query<Row extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<pg.QueryResult<Row>> {
    return this.pool.query<Row>(text, values);
  }

  /** Commits what `work` did, all of it or, when it throws, nothing. */
  async transaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    const connection = await this.pool.connect();
    try {
      await connection.query('BEGIN');
      const result = await work(connection);
      await connection.query('COMMIT');
      return result;
    } catch (error) {
      await connection.query('ROLLBACK').catch(() => {});
      throw error;
    } finally {
      connection.release();
    }
  }

  /** Several processes of the shop may start at once: one makes the tables while the others wait. */
  async onModuleInit(): Promise<void> {
    await this.transaction(async (sql) => {
      await sql.query('SELECT pg_advisory_xact_lock($1)', [SCHEMA_LOCK]);
      await sql.query(SCHEMA);
    });
  }

  async onApplicationShutdown(): Promise<void> {
    await this.pool.end();
  }
}
