import type { RedisNode } from '../redis-client.js';

/** Connects to a node of a Cluster once more; resolves to the reason when that fails, else to `undefined`. */
export async function tryNode(node: RedisNode): Promise<Error | undefined> {
  let reason: Error | undefined;
  const trial = node.duplicate({ lazyConnect: true, retryStrategy: () => null });
  trial.on('error', (error: Error) => (reason ??= error));
  try {
    await trial.connect();
  } catch {
    // The event gave the reason; this error says only that the connection is closed.
  } finally {
    trial.disconnect();
  }
  return reason;
}
