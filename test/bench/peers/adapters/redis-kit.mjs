import { connectNodeRedis } from '../clients.mjs';
import { LEASE, RETRY, WAIT } from '../patience.mjs';

export async function connect(settings) {
  const client = await connectNodeRedis(settings);
  const { Redlock } = settings.modules.require('@redis-kit/lock');
  const retries = { retryDelayMs: RETRY.delay, retryJitterMs: RETRY.jitter, maxRetryAttempts: WAIT };
  const redlock = new Redlock([client], retries);
  return async (key, body) => {
    const lock = await redlock.acquire(key, LEASE);
    try {
      return await body();
    } finally {
      await lock.release();
    }
  };
}
