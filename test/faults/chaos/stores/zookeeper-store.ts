import { setTimeout as sleep } from 'node:timers/promises';
import { startZooKeeperServer } from '../../../support/servers/zookeeper-server.js';
import { STANDSTILL } from '../settings.js';
import type { Store } from './store.js';

/** The session of a contender (ms): less than the longest standstill of one, see `contending/stores.mjs`. */
const SESSION = 1_500;
/** The server ends sessions in steps of its tick (ms). */
const TICK = 500;

export async function startZooKeeperStore(): Promise<Store> {
  const server = await startZooKeeperServer({ tickTime: TICK });
  return {
    ports: [server.port],
    request: '/locks/',
    lease: SESSION + 2 * TICK,
    faults: {
      serverStop: async () => {
        server.process.pause();
        await sleep(STANDSTILL);
        server.process.resume();
      },
      serverRestart: () => server.restart(),
    },
    // Each node of a ticket belongs to a session; the parents of names are removed when they are empty.
    leftovers: async () => (await server.ask('dump')).split('\n').filter((line) => line.includes('/locks/')),
    endless: async () => [],
    [Symbol.asyncDispose]: () => server.stop(),
  };
}
