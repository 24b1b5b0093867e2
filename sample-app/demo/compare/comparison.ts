import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { build } from 'hdr-histogram-js';
import { LockService, RedisLockModule } from 'nest-redis-lock';
import pg from 'pg';
import { startPostgresServer, type PostgresServer } from '../../servers/postgres-server.js';
import { startRedisServer, type RedisServer } from '../../servers/redis-server.js';
import { sendOrders, type LoadResult } from '../load.js';
import { openLockStore, startLockServer, type LockServer } from '../lock-stores.js';
import { LOCK_TTL, type LockBackendName } from '../shop-facts.js';
import { putOnSale, startShop, type Shop } from '../shop.js';
import { audit, type Audit } from '../verdict.js';
import { reasonOf } from '../words.js';
import { outcomesOfFaults, type FaultOutcomes } from './faults.js';
import { schemesOf, setupsOf, type Scheme, type Setup } from './schemes.js';

type SaleResult = LoadResult & Audit;

interface Measured extends FaultOutcomes {
  readonly scheme: Scheme;
  /** A sale in which nothing fails. */
  readonly sale: SaleResult;
  /** Only for locks of the module. */
  readonly acquire?: AcquireTimes;
}

interface NotRun {
  readonly scheme: Scheme;
  /** Why its server could not be started. */
  readonly notRun: string;
}

export type SchemeResult = Measured | NotRun;

/** Milliseconds from the call to the lock. */
interface AcquireTimes {
  readonly p50: number;
  readonly p99: number;
}

/** The load of one sale. More orders than pieces, so that the last pieces are fought for. */
const STOCK = 90;
const ORDERS = 120;
const CONCURRENCY = 24;
/** Orders before the sale: the first ones pay for cold code and new connections. */
const WARM_UP = 36;
/** Seconds. */
const TIME_LIMIT = 60;
/** Each process has a part in the faults: one is killed, one is frozen, and one goes on. */
const PROCESSES = 3;
/** For each process. `CONNECTIONS` of the demo's environment says why they are few. */
const DATABASE_CONNECTIONS = 8;
/** Milliseconds. */
const DATABASE_LIMITS = { connectionTimeoutMillis: 5_000, query_timeout: 20_000 };
/**
 * Milliseconds, the longest: no report and no restocking during the comparison, whose faults strike when as many
 * statements wait for the stock as there are orders. A report comes at the multiples of its interval.
 */
const NEVER = 2 ** 31 - 1;
/** Locks that are taken before the times count, and those whose times count. */
const LOCKS_BEFORE = 50;
const LOCKS = 300;

/** Measures the schemes of these names, on servers of its own. */
export async function compareSchemes(names: readonly string[]): Promise<readonly SchemeResult[]> {
  console.error('Starting Redis and PostgreSQL');
  await using servers = await ComparisonServers.start();
  const results: SchemeResult[] = [];
  for (const setup of setupsOf(schemesOf(names))) results.push(...(await runSetup(setup, servers)));
  return schemesOf(names).flatMap(({ name }) => results.filter(({ scheme }) => scheme.name === name));
}

async function runSetup(setup: Setup, servers: ComparisonServers): Promise<readonly SchemeResult[]> {
  console.error(`Measuring ${setup.schemes.map(({ title }) => title).join('; ')}`);
  let lockServer: LockServer;
  try {
    lockServer = await startLockServer(setup.backend);
  } catch (error) {
    const [notRun = ''] = reasonOf(error).split('\n');
    return setup.schemes.map((scheme) => ({ scheme, notRun }));
  }
  try {
    return await measure(setup, servers, lockServer);
  } finally {
    await lockServer.stop();
  }
}

async function measure(setup: Setup, servers: ComparisonServers, lockServer: LockServer): Promise<SchemeResult[]> {
  const { schemes, backend } = setup;
  await using stage = await Stage.open(setup, servers, lockServer);
  const sales: SaleResult[] = [];
  for (const scheme of schemes) sales.push(await sell(scheme, stage, servers));
  const locks = schemes.some(({ strategy }) => strategy === 'lock');
  const acquire = locks ? await acquireTimes(backend, lockServer.url) : undefined;
  const outcomes = await outcomesOfFaults(stage, schemes, servers.database);
  return schemes.map((scheme, index) => ({
    scheme,
    sale: sales[index] as SaleResult,
    ...(acquire && scheme.strategy === 'lock' && { acquire }),
    ...(outcomes[index] as FaultOutcomes),
  }));
}

async function sell(scheme: Scheme, stage: Stage, { database }: ComparisonServers): Promise<SaleResult> {
  await order(scheme, stage, `${scheme.name}-warm-up`, WARM_UP, WARM_UP);
  const sku = `${scheme.name}-sale`;
  const result = await order(scheme, stage, sku, STOCK, ORDERS);
  return { ...result, ...(await audit(database, sku, STOCK, result)) };
}

async function order(
  { strategy, title }: Scheme,
  { shops }: Stage,
  sku: string,
  stock: number,
  orders: number,
): Promise<LoadResult> {
  await putOnSale(shops[0], sku, stock);
  const { result } = await sendOrders({
    shops,
    strategy,
    sku,
    orders,
    concurrency: CONCURRENCY,
    timeLimit: TIME_LIMIT,
    sendAgain: () => false,
    onAnswer: () => {},
    onSilence: (message) => console.error(`${title}: ${message}`),
  });
  return result;
}

/** Takes one lock after the other, which nobody else wants. */
async function acquireTimes(name: LockBackendName, url: string): Promise<AcquireTimes> {
  const backend = await openLockStore(name, url);
  const module = RedisLockModule.forRoot({ backend, cache: false, prefix: 'acquire' });
  const app = await NestFactory.createApplicationContext(module, { logger: ['error', 'warn'], abortOnError: false });
  try {
    const locks = app.get(LockService);
    const times = build();
    for (let count = 0; count < LOCKS_BEFORE + LOCKS; count++) {
      const start = performance.now();
      const lock = await locks.acquire(`lock-${count % LOCKS_BEFORE}`, { ttl: LOCK_TTL });
      if (count >= LOCKS_BEFORE) times.recordValue((performance.now() - start) * 1_000);
      await lock.release();
    }
    return { p50: times.getValueAtPercentile(50) / 1_000, p99: times.getValueAtPercentile(99) / 1_000 };
  } finally {
    await app.close();
  }
}

/** The processes of the shop for the schemes of one setup. */
export class Stage implements AsyncDisposable {
  private constructor(
    readonly shops: readonly [doomed: Shop, sleeper: Shop, other: Shop],
    private readonly setup: Setup,
    private readonly servers: ComparisonServers,
    private readonly lockServer: LockServer,
  ) {}

  static async open(setup: Setup, servers: ComparisonServers, lockServer: LockServer): Promise<Stage> {
    const { backend } = setup;
    const env = {
      REDIS_URL: backend === 'redis' ? lockServer.url : servers.redis.url,
      DATABASE_URL: servers.postgres.url,
      DATABASE_CONNECTIONS: String(DATABASE_CONNECTIONS),
      LOCK_PREFIX: 'comparison',
      LOCK_BACKEND: backend,
      LOCK_BACKEND_URL: lockServer.url,
      LOCK_TTL: String(LOCK_TTL),
      REPORT_INTERVAL: String(NEVER),
      RESTOCK_INTERVAL: String(NEVER),
    };
    const starts = await Promise.allSettled(Array.from({ length: PROCESSES }, () => startShop(env)));
    const shops = starts.flatMap((start) => (start.status === 'fulfilled' ? [start.value] : []));
    const [doomed, sleeper, other] = shops;
    if (doomed && sleeper && other) return new Stage([doomed, sleeper, other], setup, servers, lockServer);
    await Promise.all(shops.map((shop) => shop.process.kill()));
    throw starts.find((start) => start.status === 'rejected')?.reason;
  }

  /** Restarts the server that keeps the orders for a product apart. */
  restartServer(): Promise<void> {
    return this.setup.keptBy === 'database' ? this.servers.postgres.restart() : this.lockServer.restart();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // A shop that ended in good order would first wait for the locks of products that stay locked.
    await Promise.all(this.shops.map((shop) => shop.process.kill()));
  }
}

/** What the shop of every scheme runs on: the database of the stock, and a Redis for the cache. */
class ComparisonServers implements AsyncDisposable {
  readonly database: pg.Pool;

  private constructor(
    readonly redis: RedisServer,
    readonly postgres: PostgresServer,
  ) {
    this.database = new pg.Pool({ connectionString: postgres.url, max: 3, ...DATABASE_LIMITS });
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
