import { once } from 'node:events';
import { promisify } from 'node:util';
import zookeeperClient from 'node-zookeeper-client';
import { zookeeper } from 'nest-redis-lock/zookeeper';
import { startZooKeeperServer } from '../../../dist-sample/servers/zookeeper-server.js';
import { LEASE } from '../peers/connecting.mjs';
import { FREE_1, FREE_100, HOT_4_1, HOT_4_25 } from './loads.mjs';
import { ours } from '../worker/lock-service.mjs';

const { ACL, CreateMode, Event } = zookeeperClient;
const ANYBODY = ACL.OPEN_ACL_UNSAFE;

export const versions = new URL('./packages.json', import.meta.url);

export async function start() {
  const server = await startZooKeeperServer({ tickTime: 2_000 });
  const client = await connect(server);
  for (const path of ['/bare', '/recipe']) await client.create(path, null, ANYBODY, CreateMode.PERSISTENT);
  client.close();
  return { server: { connection: server.connection }, stop: () => server.stop() };
}

export const peers = {
  /** The two requests that a lock needs at least: it neither waits nor knows an order. */
  bare: async ({ server }) => {
    const client = await connect(server);
    return async (key, body) => {
      const path = await client.create(`/bare/${key}`, null, ANYBODY, CreateMode.EPHEMERAL);
      try {
        return await body();
      } finally {
        await client.remove(path, -1);
      }
    };
  },
  /** A sequential node for each caller, and a watch of the node before it. */
  recipe: async ({ server }) => {
    const client = await connect(server);
    const parents = new Map();
    const parentOf = (key) => {
      const parent = `/recipe/${key}`;
      if (!parents.has(parent)) {
        const created = client.create(parent, null, ANYBODY, CreateMode.PERSISTENT).catch(() => {});
        parents.set(parent, created);
      }
      return parents.get(parent).then(() => parent);
    };
    return async (key, body) => {
      const parent = await parentOf(key);
      const path = await client.create(`${parent}/n-`, null, ANYBODY, CreateMode.EPHEMERAL_SEQUENTIAL);
      const name = path.slice(parent.length + 1);
      try {
        for (;;) {
          const names = (await client.children(parent)).toSorted();
          const place = names.indexOf(name);
          if (place === 0) break;
          await client.deletion(`${parent}/${names[place - 1]}`);
        }
        return await body();
      } finally {
        await client.remove(path, -1);
      }
    };
  },
  ours: async ({ server }) => ours(zookeeper({ servers: server.connection, sessionTimeout: LEASE })),
};

const ALL = ['bare', 'recipe', 'ours'];
const WAITING = ['recipe', 'ours'];

export const scenarios = [
  { ...FREE_1, among: ALL, targets: { bare: 0.6 } },
  { ...FREE_100, among: ALL, targets: { bare: 0.6 } },
  { ...HOT_4_1, among: WAITING, targets: { recipe: 15 } },
  { ...HOT_4_25, among: WAITING, targets: { recipe: 15 } },
];

async function connect({ connection }) {
  const client = zookeeperClient.createClient(connection, { sessionTimeout: LEASE });
  client.connect();
  await once(client, 'connected');
  const [create, remove, children] = ['create', 'remove', 'getChildren'].map((name) =>
    promisify(client[name]).bind(client),
  );
  const deletion = (path) =>
    new Promise((resolve) => {
      const fired = ({ type }) => type === Event.NODE_DELETED && resolve();
      client.getData(path, fired, (error) => error && resolve());
    });
  return { create, remove, children, deletion, close: () => client.close() };
}
