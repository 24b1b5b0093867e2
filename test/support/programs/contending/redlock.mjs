import { createRequire } from 'node:module';
import { join } from 'node:path';

const RETRY = { retryDelay: 50, retryJitter: 25 };
/** For a release and an extension: one that is not ours any more must not be asked for again for ever. */
const RETRIES = 10;

/** Contends with locks of redlock, which has no fencing tokens: `token(name)` answers one in the order of entry. */
export async function connectRedlock({ port, modules, token }) {
  const require = createRequire(join(modules, 'package.json'));
  const { Redis } = require('ioredis');
  const { default: Redlock, ExecutionError } = require('redlock');
  const client = new Redis({ host: '127.0.0.1', port });
  client.on('error', () => {});
  const redlock = new Redlock([client], { ...RETRY, retryCount: RETRIES });
  return {
    run: (name, { ttl, wait }, body) =>
      redlock.using(
        [name],
        ttl,
        { automaticExtensionThreshold: Math.floor(ttl / 3), retryCount: Math.ceil(wait / RETRY.retryDelay) },
        async (signal) => {
          const fencingToken = await token(name);
          return body({
            fencingToken,
            signal,
            get held() {
              return !signal.aborted;
            },
            // It tells its user of the loss, and not of the time that is left.
            remaining: () => 0,
          });
        },
      ),
    tellsOfLoss: (error) => error instanceof ExecutionError,
    left: async () => [],
    close: async () => client.disconnect(),
  };
}
