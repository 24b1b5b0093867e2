import { connectIoredis } from '../clients.mjs';
import { LEASE, RETRY } from '../patience.mjs';

export async function connect(settings) {
  const client = await connectIoredis(settings);
  const { default: Redlock } = settings.modules.require('redlock');
  const redlock = new Redlock([client], { retryCount: -1, retryDelay: RETRY.delay, retryJitter: RETRY.jitter });
  return async (key, body) => {
    const lock = await redlock.acquire([key], LEASE);
    try {
      return await body();
    } finally {
      await lock.release();
    }
  };
}
