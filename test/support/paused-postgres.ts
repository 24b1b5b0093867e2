import { descendants } from './descendants.js';
import type { PostgresServer } from './servers/postgres-server.js';

/** Stops the server with the processes of all its sessions. Returns what lets them go on. */
export async function pausePostgres({ process: server }: PostgresServer): Promise<() => Promise<void>> {
  const { pid } = server;
  signalIfThere(pid, 'SIGSTOP');
  // It makes no more of them now.
  const pids = [pid, ...(await descendants(pid))];
  for (const each of pids) signalIfThere(each, 'SIGSTOP');
  return async () => {
    for (const each of pids.toReversed()) signalIfThere(each, 'SIGCONT');
  };
}

/** The server may be restarted meanwhile. */
function signalIfThere(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
