import { Registry } from 'prom-client';
import { CacheService, LockService } from 'nest-redis-lock';
import { RedisLockMetricsModule } from 'nest-redis-lock/prometheus';
import { connectApplication } from '../worker/lock-service.mjs';

/** Operations between two looks at the clock. */
const BATCH = 100;

const nothing = async () => {};

/** Each answers a function that does one operation for the caller of that number. */
const LOADS = {
  lock: (app) => (caller) => app.get(LockService).withLock(`free:${caller}`, nothing),
  hit: (app) => () => app.get(CacheService).getOrSet('kept', () => 'value', { ttl: '1h' }),
};

/** Connects an application; answers what runs the load for a time, and tells what an operation took. */
export async function prepare({ port, load, callers, metrics, cache }) {
  const imports = metrics ? [RedisLockMetricsModule.forRoot({ registry: new Registry() })] : [];
  const app = await connectApplication(port, { cache }, imports);
  const operation = LOADS[load](app);
  return async ({ ms }) => {
    const cpu = process.cpuUsage();
    const begun = performance.now();
    let operations = 0;
    const call = async (caller) => {
      while (performance.now() - begun < ms) {
        for (let each = 0; each < BATCH; each++) await operation(caller);
        operations += BATCH;
      }
    };
    await Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)));
    const { user, system } = process.cpuUsage(cpu);
    return { microseconds: (user + system) / operations, rate: (operations / (performance.now() - begun)) * 1_000 };
  };
}
