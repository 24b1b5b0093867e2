import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { findProgram } from './programs.js';

/** Contains the host, because containers that share the folder do not see each other's processes. */
const PREFIX = `nest-redis-lock-${hostname().slice(0, 20)}-`;

const directories = new Set<string>();
let removedAtExit = false;
let janitor: Writable | undefined;

/**
 * Reads names of folders until this process is gone, however it ended, and then removes those that are left; repeatedly
 * for up to a minute, because a server that ends at the same time may still write.
 */
const JANITOR = `
trap '' INT TERM HUP
while IFS= read -r directory; do set -- "$@" "$directory"; done
tries=0
while [ $tries -lt 600 ]; do
  rm -rf -- "$@" && exit
  tries=$((tries + 1))
  sleep 0.1
done`;

/** Makes a folder that `removeDirectory` removes, at the latest when this process ends, even by SIGKILL. */
export function temporaryDirectory(owner?: { uid: number; gid: number }): string {
  if (!removedAtExit) {
    process.once('exit', removeAll);
    removeAbandoned();
  }
  removedAtExit = true;
  const directory = join(tmpdir(), `${PREFIX}${process.pid}-${randomBytes(4).toString('hex')}`);
  directories.add(directory);
  // Started before the folder exists, because this process can be killed at any time.
  janitor ??= startJanitor();
  janitor?.write(`${directory}\n`);
  mkdirSync(directory, { mode: 0o700 });
  if (owner) chownSync(directory, owner.uid, owner.gid);
  return directory;
}

export function removeDirectory(directory: string): void {
  directories.delete(directory);
  rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
}

/** Removes the folders of processes of this host that have ended together with their janitor. */
function removeAbandoned(): void {
  for (const name of readdirSync(tmpdir())) {
    const owner = name.startsWith(PREFIX) ? Number(/^(\d+)-/.exec(name.slice(PREFIX.length))?.[1]) : Number.NaN;
    if (Number.isNaN(owner) || isRunning(owner)) continue;
    try {
      removeDirectory(join(tmpdir(), name));
    } catch {
      // It belongs to another user, or its server still writes: left to the next process.
    }
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Leaves folders that an ending server still writes to, to the janitor. */
function removeAll(): void {
  for (const directory of directories) {
    try {
      removeDirectory(directory);
    } catch {}
  }
}

function startJanitor(): Writable | undefined {
  const shell = findProgram('sh');
  if (!shell) return undefined;
  const child = spawn(shell, ['-c', JANITOR, 'janitor'], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
  child.unref();
  child.on('error', () => {});
  child.stdin.on('error', () => {});
  (child.stdin as unknown as { unref(): void }).unref();
  return child.stdin;
}
