import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { etcd } from 'nest-redis-lock/etcd';
import { Pool } from 'undici';
import { startEtcdServer } from '../../../dist-sample/servers/etcd-server.js';
import { LEASE, RETRY } from '../peers/connecting.mjs';
import { ours } from '../worker/lock-service.mjs';
import { FREE_1, FREE_100, HOT_4_1, HOT_4_25 } from './loads.mjs';

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

/** The pause between two tries of a peer that leaves it to its user. */
function pause() {
  return sleep(RETRY.delay + (Math.random() * 2 - 1) * RETRY.jitter);
}

const base64 = (text) => Buffer.from(text).toString('base64');
const plain = (text) => Buffer.from(text, 'base64').toString();

/** The end of the range of all keys with the prefix. */
function endOf(prefix) {
  const bytes = Buffer.from(prefix);
  bytes[bytes.length - 1] += 1;
  return bytes.toString('base64');
}

/** The JSON gateway of etcd, without anything that a call does not need. */
class EtcdGateway {
  #url;
  #agent = new Agent({ keepAlive: true, noDelay: true });

  constructor(url) {
    this.#url = url;
  }

  async call(path, body) {
    const { response } = await this.#send(path, body, this.#agent);
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) text += chunk;
    if (response.statusCode !== 200) throw new Error(`${path}: ${text.trim()}`);
    return JSON.parse(text);
  }

  async txn(compare, success) {
    return this.call('/v3/kv/txn', { compare, success, failure: [] });
  }

  async lease(seconds) {
    const { ID } = await this.call('/v3/lease/grant', { TTL: seconds });
    return ID;
  }

  /** Resolves when the key is deleted after the revision. */
  async deletion(key, revision) {
    const body = { create_request: { key: base64(key), start_revision: String(revision + 1) } };
    const { sent, response } = await this.#send('/v3/watch', body, undefined);
    let rest = '';
    for await (const chunk of response.setEncoding('utf8')) {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop();
      const events = lines.filter(Boolean).flatMap((line) => JSON.parse(line).result?.events ?? []);
      if (events.some(({ type }) => type === 'DELETE')) break;
    }
    sent.destroy();
  }

  #send(path, body, agent) {
    return new Promise((resolve, reject) => {
      const text = JSON.stringify(body);
      const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) };
      const sent = request(this.#url + path, { method: 'POST', agent, headers }, (response) =>
        resolve({ sent, response }),
      );
      sent.on('error', reject);
      sent.end(text);
    });
  }
}

/** The same by `undici`, without its streams. */
class UndiciGateway extends EtcdGateway {
  #pool;

  constructor(url) {
    super(url);
    this.#pool = new Pool(url, { allowH2: false });
  }

  call(path, body) {
    const post = { method: 'POST', path, headers: ['Content-Type', 'application/json'], body: JSON.stringify(body) };
    return new Promise((resolve, reject) => {
      let [status, text] = [0, ''];
      this.#pool.dispatch(post, {
        onRequestStart: () => {},
        onResponseStart: (_, answered) => (status = answered),
        onResponseData: (_, part) => (text += part),
        onResponseEnd: () =>
          status === 200 ? resolve(JSON.parse(text)) : reject(new Error(`${path}: ${text.trim()}`)),
        onResponseError: (_, error) => reject(error),
      });
    });
  }
}
