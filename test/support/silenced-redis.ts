import { randomUUID } from 'node:crypto';
import { createClient } from '@redis/client';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import type { RedisConnection } from 'nest-redis-lock';
import { eventually } from './eventually.js';
import { FaultProxy } from './fault-proxy.js';
import type { LockApp } from './lock-app.js';
import { type RedisServer, startRedisServer } from './servers/redis-server.js';

export interface Address {
  readonly host: string;
  readonly port: number;
}

export let server: RedisServer;
/** A Cluster of one master. */
export let node: RedisServer;
/** Ends what tests have opened. */
export const ends: (() => unknown)[] = [];
export async function endAll(): Promise<void> {
  for (const end of ends.splice(0).toReversed()) await end();
}

/** Starts the servers before the tests of a spec, and ends what a test, or a group of concurrent ones, has opened. */
export function usesServers(): void {
  beforeAll(async () => {
    server = await startRedisServer();
    node = await startRedisServer({
      args: ['--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf', '--cluster-announce-ip', '127.0.0.1'],
    });
    const admin = new Redis(node.url);
    await admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
    await eventually(async () => /cluster_state:ok/.test(await admin.cluster('INFO')));
    admin.disconnect();
  }, 30_000);
  afterEach(endAll);
  afterAll(async () => {
    await endAll();
    await server.stop();
    await node.stop();
  });
}

export async function proxyTo(target: number): Promise<FaultProxy> {
  const proxy = await FaultProxy.start(target);
  ends.push(() => proxy.stop());
  return proxy;
}

/** Ends a client with its test, and takes its errors. */
export function ended<C extends { on(event: 'error', listener: () => void): unknown }>(
  client: C,
  end: (client: C) => unknown,
): C {
  client.on('error', () => {});
  ends.push(() => end(client));
  return client;
}

export const ioredis = (options: Partial<RedisOptions>) =>
  ended(new Redis({ ...options, replyMapping: 'legacy' }), (client) => client.disconnect());
export async function nodeRedis(create: typeof createClient, address: Address): Promise<RedisConnection> {
  const client = ended(create({ socket: address }), (made) => made.destroy());
  await client.connect();
  return client;
}
export async function clusterOf(address: Address): Promise<Cluster> {
  const admin = new Redis(node.url);
  await admin.config('SET', 'cluster-announce-port', address.port);
  admin.disconnect();
  return ended(new Cluster([address]), (client) => client.disconnect());
}

/** Takes a lock once a connection serves. */
export async function serves({ locks }: LockApp): Promise<void> {
  const name = randomUUID();
  await eventually(
    () =>
      locks.tryAcquire(name).then(
        async (lock) => (await lock?.release(), true),
        () => false,
      ),
    {
      within: 15_000,
    },
  );
}
