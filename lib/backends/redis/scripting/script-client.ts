import type { Cluster } from 'ioredis';
import type { RedisClient } from '../redis-client.js';

type SendCommand = Cluster['sendCommand'];

/**
 * The client, for scripts. On a Cluster it differs from the given one:
 *
 * - `enableAutoPipelining` is off. With it, ioredis 5 sends the scripts of one turn of the event loop as one pipeline,
 *   although their keys may lie in different slots: it takes the digest of a script for its key.
 * - TRYAGAIN rejects at once. ioredis would repeat the command for seconds, as long as the slot is being migrated.
 */
export function scriptClient(client: RedisClient): RedisClient {
  if (!client.isCluster) return client;
  const cluster = client as Cluster;
  const sendCommand: SendCommand = (command, ...where) => {
    const { reject } = command;
    const sent = cluster.sendCommand(command, ...where);
    const redirect = command.reject;
    command.reject = (error) => (isTryAgain(error) ? reject : redirect).call(command, error);
    return sent;
  };
  return Object.create(cluster, {
    options: { value: { ...cluster.options, enableAutoPipelining: false } },
    sendCommand: { value: sendCommand },
  }) as Cluster;
}

/** Whether a node refused a script because some of its keys are at the other node of a slot that is being migrated. */
export function isTryAgain(error: Error): boolean {
  return error.message.startsWith('TRYAGAIN ');
}
