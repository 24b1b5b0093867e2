import { setTimeout as sleep } from 'node:timers/promises';
import type { ServerProcess } from './server-process.js';

const [TRIES, PAUSE] = [10, 500];

/** Starts a server on the port that it had: a connection of another program may have that for a moment, as its own. */
export async function startAgain(start: () => Promise<ServerProcess>): Promise<ServerProcess> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start();
    } catch (error) {
      if (attempt === TRIES || !/address already in use/i.test(String(error))) throw error;
    }
    await sleep(PAUSE);
  }
}
