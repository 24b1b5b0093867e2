import { Redis } from 'ioredis';
import { redis } from '../../../lib/backends/redis/locks/redis-lock-backend.js';
import type { PrimitiveStoreProvider } from '../../../lib/contracts/primitives/primitive-stores.js';
import { server, startRedis } from '../../support/one-redis.js';

startRedis();

it('tells those who wait the last token, keeps leases, and frees what reaches nobody', async () => {
  const backend = redis(server.url);
  const stores = (backend as typeof backend & PrimitiveStoreProvider).openPrimitiveStores(undefined);
  const { semaphores, latches } = stores;
  const admin = new Redis(server.url);
  const acquire = (ticket: string) =>
    semaphores.acquire({ name: 'name', ticket, count: 1, permits: 1, ttl: 60_000, queues: true });
  try {
    const granted = await acquire('holder:1');
    const { fencingToken } = granted as { fencingToken: number };
    expect(await acquire('deaf:1')).toMatchObject({ status: 'busy', lastToken: fencingToken });
    const waiters = [{ ticket: 'deaf:1', count: 1 }];
    const beat = await semaphores.beat({ name: 'name', process: 'deaf', permits: 1, waiters });
    expect(beat).toMatchObject({ states: [{ status: 'waiting' }], lastToken: fencingToken });
    const renewal = { name: 'name', ticket: 'holder:1', count: 1, ttl: 1_000 };
    expect(await semaphores.renew(renewal)).toBeGreaterThan(30_000);
    expect(await semaphores.release({ name: 'name', ticket: 'holder:1', count: 1 })).toMatchObject({ live: true });
    // No process listens to the message for the waiter.
    expect(await semaphores.use('name')).toEqual({ permits: 1, taken: 0 });
    await latches.define({ name: 'name', count: 2, ttl: 60_000 });
    await latches.arrive({ name: 'name', arrival: 'one' });
    await latches.look('name', 'process');
    const keys = await admin.keys('*');
    expect(keys.filter((key) => key.startsWith('latch:'))).toHaveLength(3);
    for (const key of keys) expect([key, await admin.pttl(key)]).not.toEqual([key, -1]);
  } finally {
    admin.disconnect();
    await stores.close();
    await backend.close();
  }
});

it('looks at few of the waiters of a dead process at a time, and drops them in the end', async () => {
  const backend = redis(server.url);
  const stores = (backend as typeof backend & PrimitiveStoreProvider).openPrimitiveStores(undefined);
  const { semaphores } = stores;
  const admin = new Redis(server.url);
  const acquire = (ticket: string) =>
    semaphores.acquire({ name: 'dead', ticket, count: 1, permits: 1, ttl: 60_000, queues: true });
  const beat = async () => {
    const waiters = [{ ticket: 'alive:1', count: 1 }];
    const { states } = await semaphores.beat({ name: 'dead', process: 'alive', permits: 1, waiters });
    return states[0]?.status;
  };
  const heardOfLast = async (ms: number) => {
    const [seconds] = await admin.time();
    await admin.zadd('semaphore:{dead}:processes', 'XX', String(2 * (Number(seconds) * 1_000 - ms)), 'dead');
  };
  const reads = async () => {
    const stats = await admin.info('commandstats');
    const calls = Array.from(stats.matchAll(/cmdstat_z(?:range|score):calls=(\d+)/g), ([, count]) => Number(count));
    return calls.reduce((sum, each) => sum + each, 0);
  };
  try {
    await acquire('holder:1');
    await Promise.all(Array.from({ length: 3_500 }, (_, number) => acquire(`dead:${number}`)));
    await acquire('alive:1');
    await heardOfLast(2_000);
    const before = await reads();
    await semaphores.release({ name: 'dead', ticket: 'holder:1', count: 1 });
    expect((await reads()) - before).toBeLessThan(100);
    expect(await beat()).toBe('waiting');
    await heardOfLast(10_000);
    const statuses: unknown[] = [];
    for (let time = 1; time <= 4; time++) statuses.push(await beat());
    expect(statuses).toEqual(['waiting', 'waiting', 'waiting', 'granted']);
    expect(await admin.zcard('semaphore:{dead}:queue')).toBe(0);
  } finally {
    admin.disconnect();
    await stores.close();
    await backend.close();
  }
});
