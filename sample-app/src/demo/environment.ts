import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { startPostgresServer } from '../servers/postgres-server.js';
import { startRedisServer } from '../servers/redis-server.js';
import { startShop, type Shop } from './shop-process.js';

/** Connections to the database that all processes of the shop open together: few enough for a server as it comes. */
const CONNECTIONS = 60;

/** What the demo runs on: Redis, PostgreSQL and the processes of the shop. Ends what it started, in reverse order. */
export class Environment implements AsyncDisposable {
  readonly shops: Shop[] = [];
  private readonly endings: (() => Promise<unknown>)[] = [];
  private starting: Promise<void> | undefined;
  private ending: Promise<void> | undefined;
  redisUrl!: string;
  database!: pg.Pool;

  /** `REDIS_URL` and `DATABASE_URL` are used where they are set, under a prefix and in a schema of our own. */
  start(instances: number): Promise<void> {
    this.starting = this.begin(instances);
    return this.starting;
  }

  get ended(): boolean {
    return this.ending !== undefined;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.ending ??= this.end();
    return this.ending;
  }

  private async begin(instances: number): Promise<void> {
    const name = `nest_redis_lock_demo_${randomBytes(4).toString('hex')}`;
    const [redisUrl, databaseUrl] = await Promise.all([this.redis(), this.postgres(name)]);
    if (this.ended) return;
    this.redisUrl = redisUrl;
    this.database = new pg.Pool({ connectionString: databaseUrl, max: 2 });
    this.database.on('error', () => {});
    this.endings.push(() => this.database.end());
    const env = {
      REDIS_URL: redisUrl,
      DATABASE_URL: databaseUrl,
      DATABASE_CONNECTIONS: String(Math.max(1, Math.floor(CONNECTIONS / instances))),
      LOCK_PREFIX: name,
    };
    await Promise.all(Array.from({ length: instances }, () => this.shop(env)));
  }

  private async redis(): Promise<string> {
    const given = process.env['REDIS_URL'];
    if (given) return given;
    const server = await startRedisServer();
    this.endings.push(() => server.stop());
    return server.url;
  }

  private async postgres(schema: string): Promise<string> {
    const given = process.env['DATABASE_URL'];
    if (!given) {
      const server = await startPostgresServer();
      this.endings.push(() => server.stop());
      return server.url;
    }
    await execute(given, `CREATE SCHEMA ${schema}`);
    this.endings.push(() => execute(given, `DROP SCHEMA ${schema} CASCADE`));
    const url = new URL(given);
    url.searchParams.set('options', `-c search_path=${schema}`);
    return url.href;
  }

  private async shop(env: Record<string, string>): Promise<void> {
    const shop = await startShop(env);
    this.shops.push(shop);
    this.endings.push(() => shop.process.stop());
  }

  private async end(): Promise<void> {
    // What is half started now could not be ended yet.
    await this.starting?.catch(() => {});
    // The shops came last and go first, side by side; the servers under them after.
    await Promise.all(this.shops.map((shop) => shop.process.stop()));
    for (const end of this.endings.toReversed()) await end();
  }
}

async function execute(databaseUrl: string, statement: string): Promise<void> {
  const client = new pg.Client(databaseUrl);
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
