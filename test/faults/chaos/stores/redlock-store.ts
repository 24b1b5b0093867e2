import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { SETTINGS, STANDSTILL } from '../settings.js';
import { RedisOnlooker } from './redis-onlooker.js';
import type { Store } from './store.js';

const NODES = 3;
/**
 * How long (ms) a node grants nothing after its start; see `contending/stores.mjs`. One node fails at a time: they
 * restart with this time and the longest lease between them, lest two of three have forgotten a lock, and none stands
 * still then, because a lock that it did not take meanwhile is on two alone.
 */
const RESTART_DELAY = 2_000;

export async function startRedlockStore(): Promise<Store> {
  const servers = await Promise.all(Array.from({ length: NODES }, () => startRedisServer()));
  const admins = servers.map(({ port }) => new Redis({ host: '127.0.0.1', port }));
  for (const admin of admins) admin.on('error', () => {});
  const onlooker = new RedisOnlooker(admins);
  let turn = 0;
  let failing: Promise<unknown> = Promise.resolve();
  const afterOthers = (fail: () => Promise<void>) => () => (failing = failing.then(fail));
  const restartNext = async () => {
    const index = turn++ % NODES;
    const { port, stop } = servers[index] as RedisServer;
    await stop();
    servers[index] = await startRedisServer({ port });
    await sleep(RESTART_DELAY + SETTINGS.ttl.most);
  };
  return {
    ports: servers.map(({ port }) => port),
    request: 'eval',
    lease: RESTART_DELAY + SETTINGS.ttl.most,
    faults: {
      nodeStop: afterOthers(async () => {
        const { process } = servers[turn++ % NODES] as RedisServer;
        process.pause();
        await sleep(STANDSTILL);
        process.resume();
        await sleep(SETTINGS.ttl.most);
      }),
      nodeRestart: afterOthers(restartNext),
    },
    leftovers: () => onlooker.leftovers(),
    endless: () => onlooker.endless(),
    [Symbol.asyncDispose]: async () => {
      for (const admin of admins) admin.disconnect();
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}
