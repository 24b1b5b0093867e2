import { once } from 'node:events';

/** `module` says which version; a client that survives the loss of its server, as its documentation shows it. */
export async function connectIoredis(module, { port, modules }, options = {}) {
  const { Redis } = modules.require(module);
  const client = new Redis({ host: '127.0.0.1', port, ...options });
  client.on('error', () => {});
  await once(client, 'ready');
  return client;
}

/** So that what it says is not thrown. */
export function quiet(emitter) {
  return emitter.on('error', () => {});
}

/** How many values every peer keeps in memory at most: more than any scenario has. */
export const FIRST_LEVEL_SIZE = 50_000;
