import { quiet } from '../clients.mjs';
import { readThrough } from '../read-through.mjs';

/** Over the client that the Redis store of cache-manager and cacheable is made of. */
export async function connect({ port, modules }) {
  const { createClient } = modules.require('@redis/client');
  const client = quiet(createClient({ socket: { host: '127.0.0.1', port } }));
  await client.connect();
  return readThrough({
    get: (key) => client.get(key),
    set: (key, value, ttl) => client.set(key, value, { PX: ttl }),
    del: (key) => client.del(key),
  });
}
