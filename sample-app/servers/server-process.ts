import { spawn, type ChildProcess } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import getPort, { portNumbers } from 'get-port';
import { findProgram } from './programs.js';

export interface ServerProcessOptions {
  command: string;
  args: string[];
  directory?: string;
  env?: Record<string, string>;
  /** The user to run as; only for root. */
  user?: { uid: number; gid: number; name: string };
  /** The signal that asks it to end. */
  stopSignal?: NodeJS.Signals;
  /** Resolves once the server can be used; called repeatedly until then. */
  ready: (server: ServerProcess) => Promise<unknown>;
  /** Milliseconds until it must be ready. */
  timeout?: number;
  /** How the child learns of our death: from the kernel if `setpriv` is installed, otherwise from a watcher child. */
  guard?: 'kernel' | 'watcher';
}

const LOG_SIZE = 64_000;
/** Milliseconds. */
const STOP_GRACE = 10_000;
/** How often a server is started on the port that it had, and milliseconds between two tries. */
const [TRIES, PAUSE] = [10, 500];
/** From here on the system gives ports to connections: one of those could take that of a server that restarts. */
const FIRST_OF_CONNECTIONS = 32_768;

const running = new Set<ServerProcess>();
let endedAtExit = false;

/** A server that we started: it ends when we end, also when we are killed with SIGKILL. */
export class ServerProcess {
  log = '';
  readonly exited: Promise<number | null>;
  private ended = false;

  private constructor(
    private readonly child: ChildProcess,
    private readonly stopSignal: NodeJS.Signals,
  ) {
    if (!endedAtExit) process.once('exit', () => running.forEach((server) => server.child.kill(server.deathSignal)));
    endedAtExit = true;
    running.add(this);
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (data: Buffer) => (this.log = (this.log + data.toString()).slice(-LOG_SIZE)));
    }
    this.exited = new Promise((resolve) => {
      const end = (code: number | null) => {
        this.ended = true;
        running.delete(this);
        resolve(code);
      };
      child.once('exit', end);
      child.once('error', (error) => {
        this.log += error.message;
        end(null);
      });
    });
  }

  static async start(options: ServerProcessOptions): Promise<ServerProcess> {
    const { ready, stopSignal = 'SIGTERM', timeout = 90_000 } = options;
    const server = new ServerProcess(spawnGuarded(options), stopSignal);
    const until = performance.now() + timeout;
    for (;;) {
      if (server.ended) throw new Error(`${options.command} ended before it was ready:\n${server.log}`);
      try {
        await ready(server);
        return server;
      } catch (error) {
        if (performance.now() > until) {
          await server.kill();
          throw new Error(`${options.command} was not ready within ${timeout} ms: ${String(error)}\n${server.log}`, {
            cause: error,
          });
        }
      }
      await sleep(10);
    }
  }

  /** PostgreSQL must be asked even then, or its own children and its shared memory would stay. */
  private get deathSignal(): NodeJS.Signals {
    return deathSignalOf(this.stopSignal);
  }

  get running(): boolean {
    return !this.ended;
  }

  get pid(): number {
    return this.child.pid as number;
  }

  /** Suspends it; connections stay open. On Linux it stands still by then: its threads may go on for a moment. */
  pause(): void {
    this.child.kill('SIGSTOP');
    const until = performance.now() + 1_000;
    while (!this.standsStill && performance.now() < until);
  }

  private get standsStill(): boolean {
    const tasks = `/proc/${this.child.pid}/task`;
    try {
      return readdirSync(tasks).every((task) => /^[^)]*\) [TtZX]/.test(readFileSync(`${tasks}/${task}/stat`, 'utf8')));
    } catch {
      return true;
    }
  }

  resume(): void {
    this.child.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    if (!this.ended) this.child.kill('SIGKILL');
    await this.exited;
  }

  /**
   * Asks it to end, and kills it if it does not. Returns its exit code. Children that stand still go on, since a
   * PostgreSQL that is killed while it waits for one leaves that behind.
   */
  async stop(): Promise<number | null> {
    if (!this.ended) {
      const children = childrenOf(this.pid);
      this.resume();
      signalAll(children, 'SIGCONT');
      this.child.kill(this.stopSignal);
      const impatience = setTimeout(() => {
        this.child.kill('SIGKILL');
        signalAll(children, 'SIGKILL');
      }, STOP_GRACE);
      await this.exited;
      clearTimeout(impatience);
    }
    return this.exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** None where the system does not tell: only Linux does. */
function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').map(Number).filter(Boolean);
  } catch {
    return [];
  }
}

function signalAll(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // It has ended.
    }
  }
}

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

/** A port on which nothing listens. Others look for one at the same time, so each begins somewhere else. */
export function freePort(): Promise<number> {
  const from = randomInt(20_000, FIRST_OF_CONNECTIONS - 100);
  return getPort({ port: portNumbers(from, FIRST_OF_CONNECTIONS - 1) });
}

/** Starts a process that ends when we end. */
export function spawnGuarded(options: Omit<ServerProcessOptions, 'ready' | 'timeout'>): ChildProcess {
  const { command, args, directory, env, user, stopSignal = 'SIGTERM' } = options;
  const setpriv = findProgram('setpriv');
  const { guard = setpriv && process.platform === 'linux' ? 'kernel' : 'watcher' } = options;
  const settings = {
    ...(directory !== undefined && { cwd: directory }),
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'] as ['ignore', 'pipe', 'pipe'],
  };
  if (guard === 'kernel' && setpriv) {
    // setpriv replaces itself with the command, so the child is the server.
    const deathSignal = deathSignalOf(stopSignal).replace('SIG', '');
    const as = user ? [`--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups'] : [];
    return spawn(setpriv, ['--pdeathsig', deathSignal, ...as, '--', command, ...args], settings);
  }
  const child = spawn(command, args, { ...settings, ...(user && { uid: user.uid, gid: user.gid }) });
  watch(child, deathSignalOf(stopSignal));
  return child;
}

function deathSignalOf(stopSignal: NodeJS.Signals): NodeJS.Signals {
  return stopSignal === 'SIGQUIT' ? 'SIGQUIT' : 'SIGKILL';
}

/** A child that kills the server when we are gone, which it learns from the end of its standard input. */
function watch(server: ChildProcess, signal: NodeJS.Signals): void {
  if (server.pid === undefined) return;
  const program = `process.stdin.resume().on('end', () => { try { process.kill(${server.pid}, '${signal}') } catch {} })`;
  const watcher = spawn(process.execPath, ['-e', program], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
  watcher.unref();
  (watcher.stdin as unknown as { unref(): void }).unref();
  server.once('exit', () => watcher.kill('SIGKILL'));
}
