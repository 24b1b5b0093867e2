import { once } from 'node:events';
import { redlock } from 'nest-redis-lock/redlock';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { LEASE, RETRY } from '../peers/connecting.mjs';
import { FREE_1, FREE_100, HOT_1_100, HOT_4_1, HOT_4_25 } from './loads.mjs';
import { ours } from '../worker/lock-service.mjs';

const NODES = 5;

export const versions = new URL('../peers/packages.json', import.meta.url);

export async function start() {
  const servers = await Promise.all(Array.from({ length: NODES }, () => startRedisServer()));
  return {
    server: { ports: servers.map(({ port }) => port) },
    stop: () => Promise.all(servers.map((server) => server.stop())),
  };
}

export const peers = {
  redlock: async ({ server, modules }) => {
    const { default: Redlock } = modules.require('redlock');
    const clients = await connectAll(server, modules);
    const locks = new Redlock(clients, { retryCount: -1, retryDelay: RETRY.delay, retryJitter: RETRY.jitter });
    return async (key, body) => {
      const lock = await locks.acquire([key], LEASE);
      try {
        return await body();
      } finally {
        await lock.release();
      }
    };
  },
  ours: async ({ server }) => ours(redlock(server.ports.map((port) => ({ host: '127.0.0.1', port })))),
};

const ALL = ['redlock', 'ours'];

export const scenarios = [
  { ...FREE_1, among: ALL, targets: { redlock: 0.9 } },
  { ...FREE_100, among: ALL, targets: { redlock: 1.2 } },
  { ...HOT_4_1, among: ALL, targets: { redlock: 20 } },
  { ...HOT_4_25, among: ALL, targets: {} },
  { ...HOT_1_100, among: ALL, targets: { redlock: 15 } },
];

async function connectAll({ ports }, modules) {
  const { Redis } = modules.require('ioredis');
  const clients = ports.map((port) => new Redis({ host: '127.0.0.1', port }));
  await Promise.all(clients.map((client) => once(client, 'ready')));
  return clients;
}
