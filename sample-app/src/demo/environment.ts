import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { placeOf, reasonOf } from '../places.js';
import { startPostgresServer } from '../servers/postgres-server.js';
import { startRedisServer } from '../servers/redis-server.js';
import type { ServerProcess } from '../servers/server-process.js';
import { illnessOf } from './illness.js';
import { removeKeys, requireRedis } from './given-redis.js';
import { startShop, type Shop } from './shop-process.js';

/**
 * Connections to the database that all processes of the shop open together. Few, because PostgreSQL does not keep to
 * the order in which they wait for one row, and the processes do: of 60, some waited for seconds where the others took
 * milliseconds.
 */
const CONNECTIONS = 24;
/** Milliseconds. */
const DATABASE_LIMITS = { connectionTimeoutMillis: 5_000, query_timeout: 5_000 };
const LONGEST_ENDING = 10_000;

/** What the demo runs on: Redis, PostgreSQL and the processes of the shop. Ends what it started, in reverse order. */
export class Environment implements AsyncDisposable {
  readonly shops: Shop[] = [];
  private readonly endings: { what: string; end: () => Promise<unknown> }[] = [];
  private readonly interruption = new AbortController();
  private starting: Promise<void> | undefined;
  private ending: Promise<void> | undefined;
  private shopSettings: Record<string, string> = {};
  redisUrl!: string;
  /** The server, where it is ours. */
  redisProcess: ServerProcess | undefined;
  database!: pg.Pool;

  /** `REDIS_URL` and `DATABASE_URL` are used where they are set, under a prefix and in a schema of our own. */
  start(instances: number): Promise<void> {
    this.starting = this.begin(instances);
    return this.starting;
  }

  get ended(): boolean {
    return this.ending !== undefined;
  }

  /** Aborted as soon as the end begins. */
  get signal(): AbortSignal {
    return this.interruption.signal;
  }

  /** What is wrong with the shop, if anything is. */
  illness(): Promise<string | undefined> {
    return illnessOf(this.shops);
  }

  /** Starts a process of the shop in the place of one that has ended. */
  async replace(shop: Shop): Promise<void> {
    if (this.ended) return;
    const started = await this.startShop();
    this.shops[this.shops.indexOf(shop)] = started;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.interruption.abort();
    this.ending ??= this.end();
    return this.ending;
  }

  private async begin(instances: number): Promise<void> {
    const name = `nest_redis_lock_demo_${randomBytes(4).toString('hex')}`;
    const servers = [this.redis(name), this.postgres(name)] as const;
    // Also where one fails: what starts later than the end would never be ended.
    await Promise.allSettled(servers);
    const [redisUrl, databaseUrl] = await Promise.all(servers);
    if (this.ended) return;
    this.redisUrl = redisUrl;
    this.database = new pg.Pool({ connectionString: databaseUrl, max: 2, ...DATABASE_LIMITS });
    this.database.on('error', () => {});
    this.endings.push({ what: 'close the connections to PostgreSQL', end: () => this.database.end() });
    this.shopSettings = {
      REDIS_URL: redisUrl,
      DATABASE_URL: databaseUrl,
      DATABASE_CONNECTIONS: String(Math.max(1, Math.floor(CONNECTIONS / instances))),
      LOCK_PREFIX: name,
    };
    const shops = Array.from({ length: instances }, async () => void this.shops.push(await this.startShop()));
    await Promise.allSettled(shops);
    await Promise.all(shops);
  }

  private async redis(prefix: string): Promise<string> {
    const given = process.env['REDIS_URL'];
    if (given) {
      await requireRedis(given);
      this.endings.push({ what: `remove our keys from ${placeOf(given)}`, end: () => removeKeys(given, prefix) });
      return given;
    }
    const server = await startRedisServer();
    this.redisProcess = server.process;
    this.endings.push({ what: 'stop Redis', end: () => server.stop() });
    return server.url;
  }

  private async postgres(schema: string): Promise<string> {
    const given = process.env['DATABASE_URL'];
    if (!given) {
      const server = await startPostgresServer();
      this.endings.push({ what: 'stop PostgreSQL', end: () => server.stop() });
      return server.url;
    }
    try {
      await execute(given, `CREATE SCHEMA ${schema}`);
    } catch (error) {
      throw new Error(`DATABASE_URL: no use of ${placeOf(given)} (${reasonOf(error)})`, { cause: error });
    }
    this.endings.push({
      what: `remove our schema from ${placeOf(given)}`,
      end: () => execute(given, `DROP SCHEMA ${schema} CASCADE`),
    });
    const url = new URL(given);
    url.searchParams.set('options', `-c search_path=${schema}`);
    return url.href;
  }

  private startShop(): Promise<Shop> {
    return startShop(this.shopSettings);
  }

  private async end(): Promise<void> {
    // What is half started now could not be ended yet.
    await this.starting?.catch(() => {});
    // The shops came last and go first, side by side; the servers under them after.
    await Promise.all(this.shops.map((shop) => shop.process.stop()));
    for (const { what, end } of this.endings.toReversed()) {
      try {
        await Promise.race([end(), tooLate()]);
      } catch (error) {
        console.error(`Could not ${what}: ${reasonOf(error)}`);
      }
    }
  }
}

async function tooLate(): Promise<never> {
  await sleep(LONGEST_ENDING, undefined, { ref: false });
  throw new Error(`not within ${LONGEST_ENDING / 1_000} s`);
}

async function execute(databaseUrl: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl, ...DATABASE_LIMITS });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query(statement);
  } finally {
    await client.end();
  }
}
