import { connectIoredis } from '../clients.mjs';
import { readThrough } from '../read-through.mjs';

export async function connect({ options, ...settings }) {
  const client = await connectIoredis(options.module, settings, options.client);
  return readThrough({
    get: (key) => client.get(key),
    set: (key, value, ttl) => client.set(key, value, 'PX', ttl),
    del: (key) => client.del(key),
  });
}
