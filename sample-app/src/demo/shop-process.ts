import { fileURLToPath } from 'node:url';
import { ServerProcess } from '../servers/server-process.js';

export interface Shop {
  readonly url: string;
  readonly process: ServerProcess;
}

const PROGRAM = fileURLToPath(new URL('../main.js', import.meta.url));

/** Starts one process of the shop on a free port. */
export async function startShop(env: Record<string, string>, program = PROGRAM): Promise<Shop> {
  const started = await ServerProcess.start({
    command: process.execPath,
    args: [program],
    env: { PORT: '0', ...env },
    ready: async (server) => urlOf(server),
  });
  return { url: urlOf(started), process: started };
}

function urlOf({ log }: ServerProcess): string {
  const port = /shop listening on \S+:(\d+)/.exec(log)?.[1];
  if (port === undefined) throw new Error('the shop does not listen yet');
  return `http://127.0.0.1:${port}`;
}
