import { connectIoredis } from '../clients.mjs';
import { LEASE, WAIT } from '../patience.mjs';

export async function connect(settings) {
  const client = await connectIoredis(settings);
  const { Mutex } = settings.modules.require('redis-semaphore');
  return async (key, body) => {
    const mutex = new Mutex(client, key, { lockTimeout: LEASE, acquireTimeout: WAIT });
    await mutex.acquire();
    try {
      return await body();
    } finally {
      await mutex.release();
    }
  };
}
