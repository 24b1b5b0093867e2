import { memory, type RedisLockModuleOptions } from 'nest-redis-lock';
import { startRedisCluster } from '../../support/servers/redis-cluster.js';
import { startRedisSentinel } from '../../support/servers/redis-sentinel.js';
import { startRedisServer } from '../../support/servers/redis-server.js';

/** A store of primitives for several applications. */
export interface PrimitiveWorld {
  /** Of the module of a further application. */
  options(): RedisLockModuleOptions;
  stop(): Promise<unknown>;
}

/** All stores that keep primitives, by their names. */
export const PRIMITIVE_WORLDS: Readonly<Record<string, () => Promise<PrimitiveWorld>>> = {
  redis: async () => {
    const server = await startRedisServer();
    return { options: () => ({ redis: server.url }), stop: () => server.stop() };
  },
  'Redis with Sentinel': async () => {
    const sentinel = await startRedisSentinel();
    return { options: () => ({ redis: sentinel.options }), stop: () => sentinel.stop() };
  },
  'a Redis Cluster': async () => {
    const cluster = await startRedisCluster();
    const clients: ReturnType<typeof cluster.client>[] = [];
    return {
      options: () => {
        const client = cluster.client();
        clients.push(client);
        return { redis: client };
      },
      stop: async () => {
        for (const client of clients) client.disconnect();
        await cluster.stop();
      },
    };
  },
  memory: async () => {
    const backend = memory();
    return { options: () => ({ backend }), stop: () => backend.close() };
  },
};
