import type { Redis } from 'ioredis';

/** Connects to a node of a Cluster once more; resolves to the reason when that fails, else to `undefined`. */
export async function tryNode(node: Redis): Promise<Error | undefined> {
  let reason: Error | undefined;
  const trial = node.duplicate({ lazyConnect: true, retryStrategy: () => null });
  trial.on('error', (error: Error) => (reason ??= error));
  try {
    await trial.connect();
  } catch {
    // The reason came with the event; this error only says that the connection is closed.
  } finally {
    trial.disconnect();
  }
  return reason;
}
