import { once } from 'node:events';

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
