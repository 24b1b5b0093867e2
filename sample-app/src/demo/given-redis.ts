import { Redis } from 'ioredis';
import { placeOf, reasonOf } from '../places.js';

/** Milliseconds. */
const TIME_LIMIT = 5_000;

/** @throws Error that names the server, if it does not answer */
export async function requireRedis(url: string): Promise<void> {
  try {
    await withRedis(url, (redis) => redis.ping());
  } catch (error) {
    const remedy = 'Start Redis there, or unset REDIS_URL: the demo then starts its own';
    throw new Error(`REDIS_URL: no answer from ${placeOf(url)} (${reasonOf(error)}). ${remedy}`, { cause: error });
  }
}

/** Removes the keys that the processes of the shop have stored under their prefix. */
export async function removeKeys(url: string, prefix: string): Promise<void> {
  await withRedis(url, async (redis) => {
    let cursor = '0';
    do {
      const [next, keys] = await redis.scan(cursor, 'MATCH', `${prefix}:*`, 'COUNT', 1_000);
      if (keys.length > 0) await redis.unlink(keys);
      cursor = next;
    } while (cursor !== '0');
  });
}

async function withRedis(url: string, work: (redis: Redis) => Promise<unknown>): Promise<void> {
  const redis = new Redis(url, {
    lazyConnect: true,
    retryStrategy: null,
    connectTimeout: TIME_LIMIT,
    commandTimeout: TIME_LIMIT,
  });
  // The event says more than the error of the command.
  let failure: Error | undefined;
  redis.on('error', (error: Error) => (failure = error));
  try {
    await redis.connect();
    await work(redis);
  } catch (error) {
    throw failure ?? error;
  } finally {
    redis.disconnect();
  }
}
