import { setTimeout as sleep } from 'node:timers/promises';
import { keysOf } from '../../../support/etcd-requests.js';
import { startEtcdCluster, type EtcdMember } from '../../../support/servers/etcd-server.js';
import { STANDSTILL } from '../settings.js';
import type { Store } from './store.js';

/** The session of a contender (ms): about the longest standstill of one, see `contending/stores.mjs`. */
const SESSION = 2_000;
/** etcd ends a lease up to a second late. */
const LATE = 1_000;

export async function startEtcdStore(): Promise<Store> {
  const [server] = (await startEtcdCluster(1)) as [EtcdMember];
  return {
    ports: [Number(new URL(server.url).port)],
    request: '/v3/kv/txn',
    lease: SESSION + LATE,
    faults: {
      serverStop: async () => {
        server.process.pause();
        await sleep(STANDSTILL);
        server.process.resume();
      },
      serverRestart: async () => {
        await server.process.stop();
        await server.restart();
      },
    },
    leftovers: async () =>
      (await keysOf(server.url)).map(({ key }) => key).filter((key) => /\/(lock|wait)\//.test(key)),
    endless: async () => (await keysOf(server.url)).filter(({ lease }) => lease === undefined).map(({ key }) => key),
    [Symbol.asyncDispose]: () => server.stop(),
  };
}
