import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { startPostgresServer } from '../servers/postgres-server.js';
import { startRedisServer, type RedisServer } from '../servers/redis-server.js';
import type { ServerProcess } from '../servers/server-process.js';
import { startLockServer } from './lock-stores.js';
import { PaymentProvider } from './payment-provider.js';
import { LOCK_TTL, type LockBackendName, type Primitive } from './shop-facts.js';
import { illnessOf, startShop, type Shop } from './shop.js';
import { placeOf, reasonOf } from './words.js';

/**
 * Connections to the database that all processes of the shop open together. Few, because PostgreSQL does not serve
 * waiters for one row in order of arrival, but the processes do: with 60 connections, some orders waited for seconds
 * while others took milliseconds.
 */
const CONNECTIONS = 24;
/** Milliseconds. */
const DATABASE_LIMITS = { connectionTimeoutMillis: 5_000, query_timeout: 5_000 };
const REDIS_LIMITS = { connectTimeout: 5_000, commandTimeout: 5_000 };
const LONGEST_ENDING = 10_000;

/** Milliseconds between two stock reports of the shop, and between two looks of its leader for what is missing. */
export const REPORT_INTERVAL = 1_000;
export const RESTOCK_INTERVAL = 100;

/**
 * The servers of the demo: Redis, PostgreSQL, a payment provider and the processes of the shop. Ends what it started,
 * in reverse order.
 */
export class Environment implements AsyncDisposable {
  readonly shops: Shop[] = [];
  private readonly endings: { what: string; end: () => Promise<unknown> }[] = [];
  private readonly interruption = new AbortController();
  private starting: Promise<void> | undefined;
  private ending: Promise<void> | undefined;
  private readonly lockUrls = new Map<LockBackendName, Promise<string | undefined>>();
  private name = '';
  private without: readonly Primitive[] = [];
  private databaseUrl = '';
  /** The environment variables of each process of the shop. */
  shopSettings: Readonly<Record<string, string>> = {};
  redisUrl!: string;
  /** The Redis server, if the demo started it. */
  redisServer: RedisServer | undefined;
  database!: pg.Pool;
  provider!: PaymentProvider;

  /**
   * Uses `REDIS_URL` and `DATABASE_URL` if they are set, under a prefix and in a schema of its own. `without`: the
   * primitives that the shop does without.
   */
  start(instances: number, backend: LockBackendName, without: readonly Primitive[]): Promise<void> {
    this.starting = this.begin(instances, backend, without);
    return this.starting;
  }

  /** The same without the processes of the shop, which the caller starts by `startShop` and adds to `shops`. */
  startServers(instances: number, backend: LockBackendName): Promise<void> {
    this.starting = this.beginServers(instances, backend, []);
    return this.starting;
  }

  /** Chooses what `startShop` starts: `instances` processes with their locks in `backend`, whose server it starts. */
  async stage(instances: number, backend: LockBackendName): Promise<void> {
    const lockUrl = await this.lockUrlOf(backend);
    this.shopSettings = {
      REDIS_URL: this.redisUrl,
      DATABASE_URL: this.databaseUrl,
      DATABASE_CONNECTIONS: String(Math.max(1, Math.floor(CONNECTIONS / instances))),
      LOCK_PREFIX: this.name,
      LOCK_BACKEND: backend,
      LOCK_BACKEND_URL: lockUrl ?? this.databaseUrl,
      LOCK_TTL: String(LOCK_TTL),
      PAYMENT_URL: this.provider.url,
      REPORT_INTERVAL: String(REPORT_INTERVAL),
      RESTOCK_INTERVAL: String(RESTOCK_INTERVAL),
      WITHOUT: this.without.join(','),
    };
  }

  get redisProcess(): ServerProcess | undefined {
    return this.redisServer?.process;
  }

  get ended(): boolean {
    return this.ending !== undefined;
  }

  /** Aborted as soon as the shutdown begins. */
  get signal(): AbortSignal {
    return this.interruption.signal;
  }

  /** What is wrong with the shop, if anything. */
  illness(): Promise<string | undefined> {
    return illnessOf(this.shops);
  }

  /** Starts a process of the shop, which `shops` does not have yet. `settings` take precedence. */
  startShop(settings: Readonly<Record<string, string>> = {}): Promise<Shop> {
    return startShop({ ...this.shopSettings, ...settings });
  }

  /** Starts a process of the shop to replace one that has ended. */
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

  private async begin(instances: number, backend: LockBackendName, without: readonly Primitive[]): Promise<void> {
    await this.beginServers(instances, backend, without);
    if (this.ended) return;
    const shops = Array.from({ length: instances }, async () => void this.shops.push(await this.startShop()));
    await Promise.allSettled(shops);
    await Promise.all(shops);
  }

  private async beginServers(
    instances: number,
    backend: LockBackendName,
    without: readonly Primitive[],
  ): Promise<void> {
    this.name = `nest_redis_lock_demo_${randomBytes(4).toString('hex')}`;
    const servers = [this.redis(this.name), this.postgres(this.name), this.lockUrlOf(backend)] as const;
    // Waits for all even if one fails: a server that starts after the shutdown would never be ended.
    await Promise.allSettled(servers);
    [this.redisUrl, this.databaseUrl] = await Promise.all(servers);
    if (this.ended) return;
    this.database = new pg.Pool({ connectionString: this.databaseUrl, max: 2, ...DATABASE_LIMITS });
    this.database.on('error', () => {});
    this.endings.push({ what: 'close the connections to PostgreSQL', end: () => this.database.end() });
    const provider = await PaymentProvider.start();
    this.provider = provider;
    this.endings.push({ what: 'stop the payment provider', end: () => provider[Symbol.asyncDispose]() });
    this.without = without;
    await this.stage(instances, backend);
  }

  private lockUrlOf(backend: LockBackendName): Promise<string | undefined> {
    const known = this.lockUrls.get(backend);
    if (known) return known;
    const url = this.lockServer(backend);
    this.lockUrls.set(backend, url);
    url.catch(() => this.lockUrls.delete(backend));
    return url;
  }

  private async redis(prefix: string): Promise<string> {
    const given = process.env['REDIS_URL'];
    if (given) {
      await requireRedis(given);
      this.endings.push({ what: `remove our keys from ${placeOf(given)}`, end: () => removeKeys(given, prefix) });
      return given;
    }
    const server = await startRedisServer();
    this.redisServer = server;
    this.endings.push({ what: 'stop Redis', end: async () => this.redisServer?.stop() });
    return server.url;
  }

  /**
   * Redis and the PostgreSQL of the demo run for the shop anyway. In a given database, the tables of the locks would
   * outlive the demo.
   */
  private async lockServer(backend: LockBackendName): Promise<string | undefined> {
    if (backend === 'redis' || (backend.startsWith('postgres') && !process.env['DATABASE_URL'])) return undefined;
    const server = await startLockServer(backend);
    this.endings.push({ what: `stop the server of the locks (${backend})`, end: () => server.stop() });
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

  private async end(): Promise<void> {
    // A server that is half started could not be ended yet.
    await this.starting?.catch(() => {});
    // The shops started last and end first, in parallel; the servers under them follow.
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

/** The versions of what the demo runs on, by name. */
export async function versionsOf({ redisUrl, database }: Environment): Promise<Record<string, string>> {
  const own = createRequire(import.meta.url)('nest-redis-lock/package.json') as { version: string };
  const { rows } = await database.query<{ server_version: string }>('SHOW server_version');
  return {
    'nest-redis-lock': own.version,
    'Node.js': process.versions.node,
    ...(await redisVersion(redisUrl)),
    PostgreSQL: rows[0]?.server_version ?? 'unknown',
  };
}

async function redisVersion(url: string): Promise<Record<string, string>> {
  const redis = new Redis(url, { lazyConnect: true });
  redis.on('error', () => {});
  try {
    const info = await redis.info('server');
    // Valkey also names the version of Redis that it is compatible with.
    const valkey = /^valkey_version:(\S+)/m.exec(info)?.[1];
    return valkey ? { Valkey: valkey } : { Redis: /^redis_version:(\S+)/m.exec(info)?.[1] ?? 'unknown' };
  } finally {
    redis.disconnect();
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

/** @throws Error that names the server, if it does not answer */
async function requireRedis(url: string): Promise<void> {
  try {
    await withRedis(url, (redis) => redis.ping());
  } catch (error) {
    const remedy = 'Start Redis there, or unset REDIS_URL: the demo then starts its own';
    throw new Error(`REDIS_URL: no answer from ${placeOf(url)} (${reasonOf(error)}). ${remedy}`, { cause: error });
  }
}

/** Removes the keys that the processes of the shop have stored under their prefix. */
async function removeKeys(url: string, prefix: string): Promise<void> {
  await withRedis(url, async (redis) => {
    let cursor = '0';
    do {
      const [next, keys] = await redis.scan(cursor, 'MATCH', `${prefix}:*`, 'COUNT', 1_000);
      if (keys.length > 0) await redis.unlink(keys);
      cursor = next;
    } while (cursor !== '0');
  });
}

async function withRedis(url: string, work: (redis: Redis) => Promise<unknown>): Promise<void> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: null, ...REDIS_LIMITS });
  // The event says more than the error of the command.
  let failure: Error | undefined;
  redis.on('error', (error: Error) => (failure = error));
  try {
    await redis.connect();
    await work(redis);
  } catch (error) {
    throw failure ?? error;
  } finally {
    redis.disconnect();
  }
}
