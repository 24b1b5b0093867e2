import { etcd } from 'nest-redis-lock/etcd';
import { startEtcdServer } from '../../../dist-sample/servers/etcd-server.js';
import { LEASE } from '../peers/patience.mjs';
import { base64, endOf, EtcdGateway, plain, UndiciGateway } from './etcd-gateway.mjs';
import { FREE_1, FREE_100, HOT_4_1, HOT_4_25 } from './loads.mjs';
import { ours } from './ours.mjs';
import { pause } from './pause.mjs';

export const versions = new URL('./packages.json', import.meta.url);

const SECONDS = LEASE / 1_000;

export async function start() {
  const server = await startEtcdServer();
  return { server: { url: server.url }, stop: () => server.stop() };
}

export const peers = {
  /** The two transactions that a lock needs at least, on one lease, by `node:http`: it neither waits nor renews. */
  bare: ({ server }) => barePair(new EtcdGateway(server.url)),
  /** The same by the HTTP client that ours uses. */
  'bare undici': ({ server }) => barePair(new UndiciGateway(server.url)),
  /** A lease for each hold, a key for each caller, and a watch of the key before it. */
  recipe: async ({ server }) => {
    const gateway = new EtcdGateway(server.url);
    return async (name, body) => {
      const prefix = `recipe/${name}/`;
      const range = { key: base64(prefix), range_end: endOf(prefix), sort_target: 'CREATE', limit: '1' };
      const lease = await gateway.lease(SECONDS);
      try {
        const key = prefix + lease;
        const { header } = await gateway.txn([], [{ request_put: { key: base64(key), value: '', lease } }]);
        const earlier = { ...range, sort_order: 'DESCEND', max_create_revision: String(Number(header.revision) - 1) };
        for (;;) {
          const { kvs, header: now } = await gateway.call('/v3/kv/range', earlier);
          if (!kvs) break;
          await gateway.deletion(plain(kvs[0].key), Number(now.revision));
        }
        return await body();
      } finally {
        await gateway.call('/v3/lease/revoke', { ID: lease });
      }
    };
  },
  /** Its lock fails at once where the name is taken. */
  etcd3: async ({ server, modules }) => {
    const { Etcd3, EtcdLockFailedError } = modules.require('etcd3');
    const client = new Etcd3({ hosts: server.url });
    return async (key, body) => {
      const lock = client.lock(key).ttl(SECONDS);
      for (;;) {
        try {
          await lock.acquire();
          break;
        } catch (error) {
          if (!(error instanceof EtcdLockFailedError)) throw error;
          await pause();
        }
      }
      try {
        return await body();
      } finally {
        await lock.release();
      }
    };
  },
  ours: async ({ server }) => ours(etcd({ endpoints: [server.url] })),
};

const ALL = ['bare', 'bare undici', 'recipe', 'etcd3', 'ours'];
const WAITING = ['recipe', 'etcd3', 'ours'];

export const scenarios = [
  { ...FREE_1, among: ALL, targets: { bare: 0.95, etcd3: 1.5 } },
  { ...FREE_100, among: ALL, targets: { bare: 0.9, etcd3: 1.5 } },
  { ...HOT_4_1, among: WAITING, targets: { recipe: 30, etcd3: 30 } },
  { ...HOT_4_25, among: WAITING, targets: { recipe: 30, etcd3: 30 } },
];

async function barePair(gateway) {
  const lease = await gateway.lease(10 * SECONDS);
  let holds = 0;
  return async (name, body) => {
    const [key, value] = [base64(`bare/${name}`), base64(`${process.pid}:${holds++}`)];
    const absent = { target: 'CREATE', result: 'EQUAL', key, create_revision: '0' };
    const { succeeded } = await gateway.txn([absent], [{ request_put: { key, value, lease } }]);
    if (!succeeded) throw new Error('busy');
    try {
      return await body();
    } finally {
      await gateway.txn([{ target: 'VALUE', result: 'EQUAL', key, value }], [{ request_delete_range: { key } }]);
    }
  };
}
