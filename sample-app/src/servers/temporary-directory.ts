import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const directories = new Set<string>();
let removedAtExit = false;

/** A new folder that is removed with `removeDirectory`, at the latest when this process exits. */
export function temporaryDirectory(owner?: { uid: number; gid: number }): string {
  if (!removedAtExit) process.once('exit', () => directories.forEach(removeDirectory));
  removedAtExit = true;
  const directory = mkdtempSync(join(tmpdir(), 'nest-redis-lock-'));
  directories.add(directory);
  if (owner) chownSync(directory, owner.uid, owner.gid);
  return directory;
}

export function removeDirectory(directory: string): void {
  directories.delete(directory);
  rmSync(directory, { recursive: true, force: true });
}
