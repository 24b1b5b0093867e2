// The client as scripts are sent on it, and how one is sent: by its digest or as its text.

import type { Cluster, Redis } from 'ioredis';
import type { ScriptArgument } from './script-batch.js';
import { NOT_LOCAL } from './ready-queue.js';
import type { RedisClient } from './redis-client.js';
import type { RedisScript } from './redis-script.js';

type SendCommand = Cluster['sendCommand'];

/**
 * The client, for scripts. That of ioredis differs from the given one:
 *
 * - `enableAutoPipelining` is off. With it, ioredis 5 sends the scripts of one turn of the event loop to a Cluster as
 *   one pipeline, although their keys may lie in different slots: it takes the digest of a script for its key.
 * - On a Cluster, TRYAGAIN rejects at once. ioredis would repeat the command for seconds, as long as the slot is being
 *   migrated.
 */
export function scriptClient(client: RedisClient): RedisClient {
  if (client.library !== undefined) return client;
  const options = { value: { ...client.options, enableAutoPipelining: false } };
  if (!client.isCluster) {
    // On the client itself, which keeps its state there.
    const send = (...command: Parameters<Redis['sendCommand']>) => (client as Redis).sendCommand(...command);
    return Object.create(client, { options, sendCommand: { value: send } }) as RedisClient;
  }
  const cluster = client as Cluster;
  const sendCommand: SendCommand = (command, ...where) => {
    const { reject } = command;
    const sent = cluster.sendCommand(command, ...where);
    const redirect = command.reject;
    command.reject = (error) => (isTryAgain(error) ? reject : redirect).call(command, error);
    return sent;
  };
  return Object.create(cluster, {
    options,
    sendCommand: { value: sendCommand },
  }) as Cluster;
}

/**
 * Whether a node refused a script because some of its keys are at the other node of a slot that is being migrated; or
 * ended it where it came to a key that it had emptied itself.
 */
export function isTryAgain({ message }: Error): boolean {
  return message.startsWith('TRYAGAIN ') || NOT_LOCAL.test(message);
}

/** One call of a script, with its id. */
export interface ScriptParts {
  readonly script: RedisScript;
  readonly keys: readonly string[];
  readonly args: readonly ScriptArgument[];
  readonly id: string;
}

export function sendDigest(client: RedisClient, parts: ScriptParts): Promise<unknown> {
  return sendBy(client, 'evalsha', parts.script.sha1, parts);
}

/** Sends the text of a script that the server does not know. */
export function sendText(client: RedisClient, parts: ScriptParts): Promise<unknown> {
  return sendBy(client, 'eval', parts.script.lua, parts);
}

/** As a list: a function cannot be given as many arguments as a call may have members of a set. */
function sendBy(client: RedisClient, command: string, text: string, { script, keys, args, id }: ScriptParts) {
  const parts = [text, keys.length, ...keys, ...args, id];
  return script.bytes ? client.callBuffer(command, parts) : client.call(command, parts);
}
