import { execFileSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import getPort from 'get-port';
import { Redis } from 'ioredis';
import { findProgram } from './find-program.js';
import { ServerProcess } from './server-process.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface RedisServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly process: ServerProcess;
  stop(): Promise<void>;
}

const POLICY = '/usr/sbin/policy-rc.d';

/** The Redis (or Valkey) server program of this machine. `REDIS_SERVER` names another one. */
export function findRedisServerProgram(): string | undefined {
  const named = process.env['REDIS_SERVER'];
  return named ? findProgram(named) : findProgram('redis-server', 'valkey-server');
}

/** Finds the program, or installs it where that can be done without asking; otherwise says in one line what to do. */
export function requireRedisServerProgram(): string {
  const found = findRedisServerProgram();
  if (found) return found;
  const apt = findProgram('apt-get');
  if (!apt || process.getuid?.() !== 0) throw new Error(howToGetRedis());
  console.error('No Redis server found: installing Debian package redis-server with apt-get (no service is started)');
  try {
    installWithoutStarting(apt, 'redis-server');
  } catch (error) {
    throw new Error(`apt-get could not install redis-server. ${howToGetRedis()}`, { cause: error });
  }
  const installed = findRedisServerProgram();
  if (!installed) throw new Error(howToGetRedis());
  return installed;
}

/** Starts a Redis server of our own on a free port, without persistence. */
export async function startRedisServer(options: { args?: string[]; port?: number } = {}): Promise<RedisServer> {
  const program = requireRedisServerProgram();
  const directory = temporaryDirectory();
  for (let attempt = 1; ; attempt++) {
    const port = options.port ?? (await getPort());
    try {
      const server = await ServerProcess.start({
        command: program,
        directory,
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
      // Somebody else took the port between our look and the server's bind.
      if (options.port !== undefined || attempt === 5 || !String(error).includes('Address already in use')) throw error;
    }
  }
}

async function answersPing(port: number, server: ServerProcess): Promise<void> {
  if (server.log.includes('Address already in use')) throw new Error('Address already in use');
  // A connection that was refused has ended by itself, and keeps the process alive for as long as ioredis waits for
  // that.
  const client = new Redis({ host: '127.0.0.1', port, lazyConnect: true, retryStrategy: null, disconnectTimeout: 50 });
  client.on('error', () => {});
  try {
    await client.connect();
    const info = await client.info('server');
    // It could be somebody else's server, on the port that ours was about to take.
    if (!info.includes(`process_id:${server.pid}\r\n`)) throw new Error('another server answers');
  } finally {
    client.disconnect();
  }
}

/** apt starts what it installs, unless a policy says no, and enables it for the next boot whatever the policy says. */
function installWithoutStarting(apt: string, name: string): void {
  const ours = !existsSync(POLICY);
  if (ours) writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    const settings = { stdio: ['ignore', 'ignore', 'inherit'] as ['ignore', 'ignore', 'inherit'] };
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
    const patient = ['-o', 'DPkg::Lock::Timeout=120', '-qq'];
    execFileSync(apt, [...patient, 'update'], { ...settings, env });
    execFileSync(apt, [...patient, 'install', '-y', '--no-install-recommends', name], { ...settings, env });
    const systemctl = findProgram('systemctl');
    if (systemctl) execFileSync(systemctl, ['disable', '--quiet', name], { stdio: 'ignore' });
    else execFileSync('update-rc.d', [name, 'disable'], { stdio: 'ignore' });
  } finally {
    if (ours) rmSync(POLICY, { force: true });
  }
}

function howToGetRedis(): string {
  const ways: Partial<Record<NodeJS.Platform, string>> = {
    darwin: 'brew install redis',
    linux: 'apt-get install redis-server (as root), or dnf install redis, or apk add redis',
    win32: 'use WSL, or docker run -p 6379:6379 redis',
  };
  const way = ways[process.platform] ?? 'install redis-server';
  return `No Redis server found. Install one (${way}), or start one (docker compose up -d redis) and set REDIS_URL=redis://localhost:6379`;
}
