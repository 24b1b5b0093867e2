import type { Pool, PoolConnection } from 'mysql2';
import type { GivenConnection } from './given-connection.js';
import { connectionLimit, OwnPool } from './own-pool.js';

/** Gets a connection, which it releases, or why there is none. */
export type Use = (error: Error | null, connection?: PoolConnection) => void;

/** How a pool refuses a call while all connections are in use and its options let no call wait. */
const REFUSALS: ReadonlySet<string> = new Set(['No connections available.', 'Queue limit reached.']);

/**
 * The connections of the application's pool, or of one of our own. While all connections of the application's pool are
 * in use, statements take one spare connection of our own: code that holds a connection of the pool may wait for a
 * lock, and a lock must be renewed while a transaction runs.
 */
export class LentConnections {
  private readonly given: Pool | undefined;
  /** The spare connection, where a pool is given. */
  private readonly own: OwnPool;
  /** Whether a call of ours waits in the pool of the application, which shows that all its connections are in use. */
  private inLine = false;

  constructor({ pool, options }: GivenConnection) {
    this.given = pool;
    this.own = new OwnPool(pool ? { ...options, connectionLimit: 1 } : options);
  }

  get pool(): Pool {
    return this.given ?? this.own.pool;
  }

  /** Whether all connections are of a pool of our own. */
  get ownOnly(): boolean {
    return this.given === undefined;
  }

  /** Whether statements wait because all connections are in use; absent where they do not wait, or for the server. */
  shortage(waiting: number): string | undefined {
    if (waiting === 0 || !(this.given ? this.inLine : this.own.full)) return undefined;
    return (
      `all ${connectionLimit(this.pool)} connections of its pool are in use, and ${waiting} statements wait for one: ` +
      'raise its "connectionLimit", or release connections sooner'
    );
  }

  lend(use: Use): void {
    if (!this.given || this.inLine) this.lendOwn(use);
    else this.lendGiven(this.given, use);
  }

  close(): Promise<void> {
    return this.own.close();
  }

  private lendOwn(use: Use): void {
    this.own.pool.getConnection(use);
  }

  private lendGiven(pool: Pool, use: Use): void {
    let queued = false;
    const note = () => (queued = true);
    pool.on('enqueue', note);
    pool.getConnection((error, connection) => {
      if (queued) {
        this.inLine = false;
        if (!error) connection.release();
      } else if (error && REFUSALS.has(error.message)) this.lendOwn(use);
      else use(error, connection);
    });
    pool.off('enqueue', note);
    if (!queued) return;
    // The call cannot be withdrawn from the pool's queue: it stays there, the only one of ours.
    this.inLine = true;
    this.lendOwn(use);
  }
}
