import { createRedisClient, isRedisClient, type RedisConnection } from './redis-client.js';
import { ScriptRunner } from './script-runner.js';
import { SilenceGuard } from './silence-guard.js';

/**
 * Runs scripts on a client of the user's, which stays open, or on one of our own, which is watched for silence and closed.
 * `onSilence` is told before the connection is made anew.
 */
export function connectScripts(
  connection: RedisConnection,
  onSilence: (why: Error) => void = () => {},
): { readonly scripts: ScriptRunner; close(): void } {
  if (isRedisClient(connection)) {
    const scripts = new ScriptRunner(connection);
    return { scripts, close: () => scripts.close() };
  }
  const client = createRedisClient(connection);
  // ioredis prints an error that nobody listens to; a command that fails because of it rejects, which is where we log.
  client.on('error', () => {});
  const cut = (why: Error) => {
    client.stream?.destroy(why);
    onSilence(why);
  };
  const scripts = new ScriptRunner(client, new SilenceGuard(cut));
  return {
    scripts,
    close: () => {
      scripts.close();
      client.disconnect();
    },
  };
}
