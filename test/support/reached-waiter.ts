import { Redis } from 'ioredis';
import { eventually } from './eventually.js';

const CHANNELS = 'lock:process:';

/**
 * Waits until messages reach a process other than the holder of the lock. Before that, a waiter is handed nothing: it
 * takes the lock with its next heartbeat.
 */
export async function waiterReached({ url }: { readonly url: string }, name: string): Promise<void> {
  const client = new Redis(url);
  try {
    const holder = await client.get(`lock:{${name}}`);
    await eventually(async () => {
      const channels = (await client.pubsub('CHANNELS', `${CHANNELS}*`)) as string[];
      return channels.some((channel) => !holder?.startsWith(`${channel.slice(CHANNELS.length)}:`));
    });
  } finally {
    client.disconnect();
  }
}
