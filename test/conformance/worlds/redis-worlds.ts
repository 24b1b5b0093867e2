import { Redis } from 'ioredis';
import { redis, type LockBackend } from 'nest-redis-lock';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startRedisCluster } from '../../support/servers/redis-cluster.js';
import { startRedisSentinel } from '../../support/servers/redis-sentinel.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import type { WorldKind } from '../conforms.js';

/** A single Redis behind a proxy. */
export function singleRedisWorld(open: (port: number) => LockBackend | Promise<LockBackend>): WorldKind {
  return {
    faults: ['pause', 'restart', 'cut', 'loseReplies'],
    start: async () => {
      let server = await startRedisServer();
      const proxy = await FaultProxy.start(server.port);
      return {
        open: () => open(proxy.port),
        faults: {
          pause: async () => {
            server.process.pause();
            return async () => server.process.resume();
          },
          restart: async () => {
            const { port } = server;
            await server.stop();
            server = await startRedisServer({ port });
          },
          cut: async () => proxy.reset(),
          loseReplies: async () => {
            proxy.hold('reply');
            return async () => {
              proxy.reset();
              proxy.heal();
            };
          },
        },
        stop: async () => {
          await proxy.stop();
          await server.stop();
        },
      };
    },
  };
}

export const redisWorld = singleRedisWorld((port) => redis({ host: '127.0.0.1', port }));

export const redisClusterWorld: WorldKind = {
  faults: [],
  start: async () => {
    const cluster = await startRedisCluster();
    const clients = new Set<ReturnType<typeof cluster.client>>();
    return {
      open: () => {
        const client = cluster.client();
        clients.add(client);
        return redis(client);
      },
      stop: async () => {
        for (const client of clients) client.disconnect();
        await cluster.stop();
      },
    };
  },
};

export const redisSentinelWorld: WorldKind = {
  faults: ['cut'],
  start: async () => {
    const sentinel = await startRedisSentinel();
    return {
      open: () => redis(sentinel.options),
      faults: {
        cut: () => cutConnections(sentinel.master.port),
      },
      stop: () => sentinel.stop(),
    };
  },
};

/** Cuts the connections for commands. */
export async function cutConnections(port: number): Promise<void> {
  const admin = new Redis(port);
  await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  admin.disconnect();
}
