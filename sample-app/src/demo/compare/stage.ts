import { startShop, type Shop } from '../shop-process.js';
import type { LockServer } from '../lock-server.js';
import type { ComparisonServers } from './comparison-servers.js';
import type { Setup } from './schemes.js';

/** Each process has a part in the faults: one is killed, one is frozen, and one goes on. */
const PROCESSES = 3;
/** For each process. `CONNECTIONS` of the demo's environment says why they are few. */
const DATABASE_CONNECTIONS = 8;
/** Milliseconds: no stock report during the comparison. */
const REPORT_INTERVAL = 3_600_000;

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
      REPORT_INTERVAL: String(REPORT_INTERVAL),
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
