import { connectNodeRedis } from '../clients.mjs';
import { LEASE, WAIT } from '../patience.mjs';

export async function connect(settings) {
  const client = await connectNodeRedis(settings);
  const { lock } = await settings.modules.import('simple-redis-mutex');
  return async (key, body) => {
    const release = await lock(client, key, { timeout: LEASE, failAfter: WAIT });
    try {
      return await body();
    } finally {
      await release();
    }
  };
}
