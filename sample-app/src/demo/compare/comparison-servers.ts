import pg from 'pg';
import { startPostgresServer, type PostgresServer } from '../../servers/postgres-server.js';
import { startRedisServer, type RedisServer } from '../../servers/redis-server.js';

/** Milliseconds. */
const LIMITS = { connectionTimeoutMillis: 5_000, query_timeout: 20_000 };

/** What the shop of every scheme runs on: the database of the stock, and a Redis for the cache. */
export class ComparisonServers implements AsyncDisposable {
  readonly database: pg.Pool;

  private constructor(
    readonly redis: RedisServer,
    readonly postgres: PostgresServer,
  ) {
    this.database = new pg.Pool({ connectionString: postgres.url, max: 3, ...LIMITS });
    this.database.on('error', () => {});
  }

  static async start(): Promise<ComparisonServers> {
    // A product that was put on sale must survive the restart.
    const postgres = startPostgresServer({ synchronous_commit: 'on' });
    const [redis, database] = await Promise.all([startRedisServer(), postgres]);
    return new ComparisonServers(redis, database);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.database.end();
    await Promise.all([this.redis.stop(), this.postgres.stop()]);
  }
}
