import { once } from 'node:events';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** The lease that every peer is given, in ms: longer than any body, so that none needs to renew. */
export const LEASE = 10_000;

/** How long a caller waits for a busy lock, in ms. */
export const WAIT = 60_000;

/** The pace of the waiters (ms) where a peer leaves it to its user. */
export const RETRY = { delay: 50, jitter: 25 };

/** Loads packages out of the folder where the peers are installed. */
export function peerModules(directory) {
  const require = createRequire(join(directory, 'package.json'));
  return { require, import: (name) => import(pathToFileURL(require.resolve(name)).href) };
}

/** The client that most peers are built for. */
export async function connectIoredis({ port, modules }) {
  const { Redis } = modules.require('ioredis');
  const client = new Redis({ host: '127.0.0.1', port });
  await once(client, 'ready');
  return client;
}

export async function connectNodeRedis({ port, modules }) {
  const { createClient } = modules.require('redis');
  const client = createClient({ socket: { host: '127.0.0.1', port } });
  client.on('error', () => {});
  await client.connect();
  return client;
}

/** What connects a peer by its name. */
export function connectorOf(peers) {
  return async (name, settings) => {
    const { adapter, options } = peers[name];
    return adapter({ ...settings, options });
  };
}
