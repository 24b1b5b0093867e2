import { randomInt } from 'node:crypto';
import getPort, { portNumbers } from 'get-port';

/** From here on the system gives ports to connections: one of those could take that of a server that restarts. */
const FIRST_OF_CONNECTIONS = 32_768;

/** A port on which nothing listens. Others look for one at the same time, so each begins somewhere else. */
export function freePort(): Promise<number> {
  const from = randomInt(20_000, FIRST_OF_CONNECTIONS - 100);
  return getPort({ port: portNumbers(from, FIRST_OF_CONNECTIONS - 1) });
}
