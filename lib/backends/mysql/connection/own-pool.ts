import { createPool, type Pool, type PoolConnection, type PoolOptions } from 'mysql2';
import { Timeouts } from '../../../timing/timeouts.js';

/** How long (ms) statements under way may take when the application ends. */
const LONGEST_FAREWELL = 1_000;
/**
 * Ends transactions at once, and lets no statement wait for a row that another client keeps locked for longer than a
 * caller waits for its answer.
 */
const OWN_SESSION = 'SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1';

/** A pool of the backend's own. It connects at its first use. */
export class OwnPool {
  private opened: Pool | undefined;
  private readonly connections = new Set<PoolConnection>();
  private readonly timeouts = new Timeouts();

  constructor(private readonly options: PoolOptions) {}

  get pool(): Pool {
    return (this.opened ??= this.open());
  }

  /** Whether it may open no further connection. */
  get full(): boolean {
    return this.connections.size >= connectionLimit(this.pool);
  }

  /** Lets statements under way end, for a moment. */
  async close(): Promise<void> {
    const { opened } = this;
    if (!opened) return;
    await new Promise<void>((resolve) => {
      const expiry = this.timeouts.start(LONGEST_FAREWELL, { expire: resolve });
      opened.end(() => {
        expiry.leave();
        resolve();
      });
    });
    for (const connection of this.connections) cutOff(connection);
  }

  private open(): Pool {
    // A reset would undo the settings of the session.
    const pool = createPool({ ...this.options, resetOnRelease: false });
    pool.on('connection', (connection) => {
      this.connections.add(connection);
      connection.on('end', () => this.connections.delete(connection));
      // Runs before the statement that opened the connection; where it is refused, the defaults of the server hold.
      connection.query(OWN_SESSION, () => {});
    });
    return pool;
  }
}

/** Closes the connection without a farewell, which a server that does not answer would not read. */
export function cutOff(connection: PoolConnection): void {
  connection.destroy();
  (connection as { stream?: { destroy(): void } }).stream?.destroy();
}

export function connectionLimit(pool: Pool): number {
  return pool.config.connectionLimit || Infinity;
}
