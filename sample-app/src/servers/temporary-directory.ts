import { spawn } from 'node:child_process';
import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { findProgram } from './find-program.js';

const directories = new Set<string>();
let removedAtExit = false;
let janitor: Writable | undefined;

/**
 * Reads the names of folders until we are gone, however we went, and removes those that are left: again and again for
 * some seconds, because a server that ends at the same time may still write.
 */
const JANITOR = `
trap '' INT TERM HUP
while IFS= read -r directory; do set -- "$@" "$directory"; done
tries=0
while [ $tries -lt 100 ]; do
  rm -rf -- "$@" && exit
  tries=$((tries + 1))
  sleep 0.1
done`;

/** A new folder that is removed with `removeDirectory`, at the latest when this process ends, also by SIGKILL. */
export function temporaryDirectory(owner?: { uid: number; gid: number }): string {
  if (!removedAtExit) process.once('exit', removeAll);
  removedAtExit = true;
  const directory = mkdtempSync(join(tmpdir(), 'nest-redis-lock-'));
  directories.add(directory);
  janitor ??= startJanitor();
  janitor?.write(`${directory}\n`);
  if (owner) chownSync(directory, owner.uid, owner.gid);
  return directory;
}

export function removeDirectory(directory: string): void {
  directories.delete(directory);
  rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
}

/** What a server that ends now still writes to is left to the janitor. */
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
