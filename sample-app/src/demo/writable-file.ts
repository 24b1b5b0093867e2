import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { InvalidArgumentError } from 'commander';

/** The absolute path of a file that can be written. Opens it to find out, because permissions alone do not tell. */
export function writableFile(value: string): string {
  const file = resolve(value);
  const existed = existsSync(file);
  try {
    closeSync(openSync(file, 'a'));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new InvalidArgumentError(`It cannot be written (${reason}). Name a file in a folder that you may write to.`);
  }
  if (!existed) rmSync(file);
  return file;
}
