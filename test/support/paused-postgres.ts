import { descendants } from './descendants.js';
import type { PostgresServer } from './servers/postgres-server.js';

/** Stops the server with the processes of all its sessions. Returns what lets them go on. */
export async function pausePostgres({ process: server }: PostgresServer): Promise<() => Promise<void>> {
  const { pid } = server;
  process.kill(pid, 'SIGSTOP');
  // It makes no more of them now.
  const pids = [pid, ...(await descendants(pid))];
  for (const each of pids) process.kill(each, 'SIGSTOP');
  return async () => {
    for (const each of pids.toReversed()) process.kill(each, 'SIGCONT');
  };
}
