import { connectIoredis } from '../clients.mjs';
import { readThrough } from '../read-through.mjs';

/** Over ioredis, with what one turn of the event loop writes leaving in one system call, as `@redis/client` does. */
export async function connect(settings) {
  const client = await connectIoredis('ioredis6', settings);
  let corked = false;
  const corking = (command) => {
    if (!corked) {
      corked = true;
      const { stream } = client;
      stream.cork();
      process.nextTick(() => {
        corked = false;
        stream.uncork();
      });
    }
    return command();
  };
  return readThrough({
    get: (key) => corking(() => client.get(key)),
    set: (key, value, ttl) => corking(() => client.set(key, value, 'PX', ttl)),
    del: (key) => client.del(key),
  });
}
