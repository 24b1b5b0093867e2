import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

/**
 * The folder that `make` fills, once for all processes in whose environment SERVER_TEMPLATES names the same folder: the
 * tests start many servers, and each starts from a copy. Without the variable there is none.
 */
export async function templateOf(
  name: string,
  make: (folder: string) => Promise<unknown>,
): Promise<string | undefined> {
  const templates = process.env['SERVER_TEMPLATES'];
  if (!templates) return undefined;
  const template = join(templates, name);
  if (existsSync(template)) return template;
  const own = `${template}-${randomBytes(4).toString('hex')}`;
  mkdirSync(own, { recursive: true });
  chmodSync(own, 0o711);
  await make(own);
  try {
    renameSync(own, template);
  } catch (error) {
    // Another process was quicker.
    if (!existsSync(template)) throw error;
    rmSync(own, { recursive: true });
  }
  return template;
}

/** With owners, rights and links. */
export async function copyFolder(from: string, to: string): Promise<void> {
  await promisify(execFile)('cp', ['-a', from, to]);
}
