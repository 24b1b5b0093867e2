import { Redis } from 'ioredis';
import { eventually } from './eventually.js';

const CHANNELS = 'lock:process:';

/**
 * Waits until a process other than the holder of the lock gets messages and has queued for it. Before that, a waiter is
 * handed nothing: it takes the lock with its first request to queue, or with its next heartbeat.
 */
export async function waiterReached({ url }: { readonly url: string }, name: string): Promise<void> {
  const client = new Redis(url);
  try {
    const holder = await client.get(`lock:{${name}}`);
    await eventually(async () => {
      const channels = (await client.pubsub('CHANNELS', `${CHANNELS}*`)) as string[];
      if ((await client.exists(`lock:{${name}}:queue`)) === 0) return false;
      return channels.some((channel) => !holder?.startsWith(`${channel.slice(CHANNELS.length)}:`));
    });
  } finally {
    client.disconnect();
  }
}
