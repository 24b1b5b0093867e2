import { connectIoredis } from '../clients.mjs';
import { readThrough } from '../read-through.mjs';

/** Over ioredis, all reads of one turn of the event loop sent as one MGET. */
export async function connect(settings) {
  const client = await connectIoredis('ioredis6', settings);
  let batch;
  const flush = () => {
    const waiting = batch;
    batch = undefined;
    client.mget(waiting.map(({ key }) => key)).then(
      (values) => values.forEach((value, index) => waiting[index].resolve(value)),
      (error) => waiting.forEach(({ reject }) => reject(error)),
    );
  };
  const get = (key) =>
    new Promise((resolve, reject) => {
      if (!batch) {
        batch = [];
        process.nextTick(() => setImmediate(flush));
      }
      batch.push({ key, resolve, reject });
    });
  return readThrough({
    get,
    set: (key, value, ttl) => client.set(key, value, 'PX', ttl),
    del: (key) => client.del(key),
  });
}
