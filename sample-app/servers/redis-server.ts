import { Redis } from 'ioredis';
import { findProgram, requireServer, type NeededServer } from './programs.js';
import { freePort, ServerProcess } from './server-process.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface RedisServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly process: ServerProcess;
  stop(): Promise<void>;
}

const REDIS: NeededServer = {
  name: 'Redis',
  packages: ['redis-server'],
  find: findRedisServerProgram,
  get remedy() {
    return howToGetRedis();
  },
};

/** The Redis (or Valkey) server program of this machine. `REDIS_SERVER` names another one. */
function findRedisServerProgram(): string | undefined {
  const named = process.env['REDIS_SERVER'];
  return named ? findProgram(named) : findProgram('redis-server', 'valkey-server');
}

/** Finds the program, or installs it if that needs no question; otherwise says in one line what to do. */
export function requireRedisServerProgram(): string {
  return requireServer(REDIS);
}

/** Starts a Redis server of our own on a free port, without persistence. */
export async function startRedisServer(
  options: { args?: string[]; port?: number; env?: Record<string, string> } = {},
): Promise<RedisServer> {
  const program = requireRedisServerProgram();
  const directory = temporaryDirectory();
  for (let attempt = 1; ; attempt++) {
    const port = options.port ?? (await freePort());
    try {
      const server = await ServerProcess.start({
        command: program,
        directory,
        ...(options.env && { env: options.env }),
        args: [
          '--port',
          String(port),
          '--bind',
          '127.0.0.1',
          '--dir',
          directory,
          '--save',
          '',
          '--appendonly',
          'no',
          ...(options.args ?? []),
        ],
        ready: (started) => answersPing(port, started),
      });
      const stop = async () => {
        await server.stop();
        removeDirectory(directory);
      };
      return { url: `redis://127.0.0.1:${port}`, port, process: server, stop, [Symbol.asyncDispose]: stop };
    } catch (error) {
      // Another process took the port between our look and the server's bind.
      if (options.port !== undefined || attempt === 5 || !String(error).includes('Address already in use')) throw error;
    }
  }
}

async function answersPing(port: number, server: ServerProcess): Promise<void> {
  if (server.log.includes('Address already in use')) throw new Error('Address already in use');
  // A refused connection ends by itself, but keeps the process alive while ioredis waits for that.
  const client = new Redis({ host: '127.0.0.1', port, lazyConnect: true, retryStrategy: null, disconnectTimeout: 50 });
  client.on('error', () => {});
  try {
    await client.connect();
    const info = await client.info('server');
    // It could be another server, on the port that ours was about to take.
    if (!info.includes(`process_id:${server.pid}\r\n`)) throw new Error('another server answers');
  } finally {
    client.disconnect();
  }
}

function howToGetRedis(): string {
  const ways: Partial<Record<NodeJS.Platform, string>> = {
    darwin: 'brew install redis',
    linux: 'apt-get install redis-server (as root), or dnf install redis, or apk add redis',
    win32: 'use WSL, or docker run -p 6379:6379 redis',
  };
  const way = ways[process.platform] ?? 'install redis-server';
  return `Install one (${way}), or start one (docker compose up -d redis) and set REDIS_URL=redis://localhost:6379`;
}
