import { connectIoredis } from '../clients.mjs';
import { LEASE, RETRY, WAIT } from '../patience.mjs';

export async function connect(settings) {
  const client = await connectIoredis(settings);
  const { createLock, IoredisAdapter } = await settings.modules.import('redlock-universal');
  const adapter = new IoredisAdapter(client);
  const retries = { retryAttempts: WAIT, retryDelay: RETRY.delay };
  return async (key, body) => {
    const lock = createLock({ adapter, key, ttl: LEASE, ...retries });
    const handle = await lock.acquire();
    try {
      return await body();
    } finally {
      await lock.release(handle);
    }
  };
}
