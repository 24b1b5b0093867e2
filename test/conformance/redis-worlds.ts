import { createClient, createCluster, createSentinel } from '@redis/client';
import { Redis } from 'ioredis';
import { type LockBackend, type NodeRedisConnection, redis } from 'nest-redis-lock';
import * as version5 from 'redis-client-5';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { startRedisCluster } from '../support/servers/redis-cluster.js';
import { startRedisSentinel } from '../support/servers/redis-sentinel.js';
import { startRedisServer } from '../support/servers/redis-server.js';
import { otherProcess, type RunningWorld, type WorldKind } from './conforms.js';

/** A single Redis behind a proxy. */
function singleRedisWorld(open: (port: number) => LockBackend | Promise<LockBackend>): WorldKind {
  return {
    faults: ['pause', 'restart', 'cut', 'loseReplies', 'fork'],
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
          fork: () => otherProcess('redis', server.port),
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
      open: async () => {
        const client = cluster.client();
        clients.add(client);
        await eventually(() => client.status === 'ready');
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
async function cutConnections(port: number): Promise<void> {
  const admin = new Redis(port);
  await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  admin.disconnect();
}

/** A client of node-redis, which the application connects and closes. */
interface NodeRedis extends NodeRedisConnection {
  connect(): Promise<unknown>;
}

const onPort = (port: number) => ({ socket: { host: '127.0.0.1', port, reconnectStrategy: 50 } });

/** The clients of a world's backends, which do not close them. */
class GivenClients {
  private readonly clients = new Set<NodeRedis>();

  async connected(client: NodeRedis): Promise<NodeRedis> {
    client.on('error', () => {});
    await client.connect();
    this.clients.add(client);
    return client;
  }

  closedAfter(world: RunningWorld): RunningWorld {
    return {
      ...world,
      stop: async () => {
        for (const client of this.clients) client.destroy();
        await world.stop();
      },
    };
  }
}

export const nodeRedis6World = nodeRedisWorld((port) => createClient(onPort(port)));

export const nodeRedis6Resp2World = nodeRedisWorld((port) => createClient({ ...onPort(port), RESP: 2 }));

export const nodeRedis5World = nodeRedisWorld((port) => version5.createClient(onPort(port)));

function nodeRedisWorld(create: (port: number) => NodeRedis): WorldKind {
  const clients = new GivenClients();
  const { faults, start } = singleRedisWorld(async (port) => redis(await clients.connected(create(port))));
  return { faults, start: async () => clients.closedAfter(await start()) };
}

const asCluster = (ports: readonly number[]) => ({
  rootNodes: ports.map((port) => ({ socket: { host: '127.0.0.1', port } })),
});

export const nodeRedis6ClusterWorld = clusterWorld((ports) => createCluster(asCluster(ports)));

export const nodeRedis5ClusterWorld = clusterWorld((ports) => version5.createCluster(asCluster(ports)));

function clusterWorld(create: (ports: readonly number[]) => NodeRedis): WorldKind {
  return {
    faults: [],
    start: async () => {
      const clients = new GivenClients();
      const cluster = await startRedisCluster();
      const ports = cluster.servers.map(({ port }) => port);
      return clients.closedAfter({
        open: async () => redis(await clients.connected(create(ports))),
        stop: () => cluster.stop(),
      });
    },
  };
}

const asSentinel = (port: number) => ({ name: 'main', sentinelRootNodes: [{ host: '127.0.0.1', port }] });

export const nodeRedis6SentinelWorld = sentinelWorld((port) => createSentinel(asSentinel(port)));

export const nodeRedis5SentinelWorld = sentinelWorld((port) => version5.createSentinel(asSentinel(port)));

function sentinelWorld(create: (port: number) => NodeRedis): WorldKind {
  return {
    faults: ['cut'],
    start: async () => {
      const clients = new GivenClients();
      const sentinel = await startRedisSentinel();
      return clients.closedAfter({
        open: async () => redis(await clients.connected(create(sentinel.port))),
        faults: { cut: () => cutConnections(sentinel.master.port) },
        stop: () => sentinel.stop(),
      });
    },
  };
}
