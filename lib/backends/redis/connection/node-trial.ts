import type { Redis } from 'ioredis';

/** Connects to a node of a Cluster once more, and settles to why that fails; to `undefined` where it does not. */
export async function tryNode(node: Redis): Promise<Error | undefined> {
  let reason: Error | undefined;
  const trial = node.duplicate({ lazyConnect: true, retryStrategy: () => null });
  trial.on('error', (error: Error) => (reason ??= error));
  try {
    await trial.connect();
  } catch {
    // The event has told why; what this rejects with says only that the connection is closed.
  } finally {
    trial.disconnect();
  }
  return reason;
}
