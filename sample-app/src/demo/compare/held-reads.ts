import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';

/** Milliseconds. */
const PATIENCE = 20_000;
const PAUSE = 20;

/**
 * Stops orders at their first use of the stock: they have taken their lock by then. The table is locked, so that every
 * statement that reads or writes it waits.
 */
export class HeldReads {
  private constructor(
    private readonly database: pg.Pool,
    private readonly connection: pg.PoolClient,
  ) {}

  static async begin(database: pg.Pool): Promise<HeldReads> {
    const connection = await database.connect();
    // The server restarts meanwhile where it is the one that is tried.
    connection.on('error', () => {});
    await connection.query('BEGIN');
    await connection.query('LOCK TABLE products IN ACCESS EXCLUSIVE MODE');
    return new HeldReads(database, connection);
  }

  /** Waits until `count` statements wait. */
  async are(count: number): Promise<void> {
    const until = performance.now() + PATIENCE;
    for (;;) {
      const waiting = await this.waiting();
      if (waiting >= count) return;
      if (performance.now() > until) throw new Error(`${waiting} of ${count} orders got as far as the stock`);
      await sleep(PAUSE);
    }
  }

  /** Lets the statements go on. */
  async end(): Promise<void> {
    await this.connection.query('COMMIT').catch(() => {});
    this.connection.release(true);
  }

  private async waiting(): Promise<number> {
    const { rows } = await this.database.query<{ waiting: number }>(
      "SELECT count(*)::int AS waiting FROM pg_locks WHERE relation = 'products'::regclass AND NOT granted",
    );
    return rows[0]?.waiting ?? 0;
  }
}
