import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { fieldsOf } from '../admin/lock-fields.js';
import type { LockInfo } from '../lock/hold/lock.js';
import type { LockService } from '../lock/lock.service.js';
import { EXIT, type GlobalOptions } from './options.js';
import { placeOf, withServices } from './services.js';
import { print, holderOf, visible } from './tables.js';

interface ReleaseOptions extends GlobalOptions {
  readonly yes?: true;
}

type Outcome = { readonly released: boolean; readonly info: LockInfo | null; readonly refused?: true };

export function addReleaseCommand(root: Command): void {
  root
    .command('release')
    .description('takes a lock away from its holder, which may still be at work')
    .argument('<name>', 'the name of the lock')
    .option('-y, --yes', 'do not ask first')
    .action(async (name: string, _own: unknown, command: Command) => {
      const { json, yes, ...options } = command.optsWithGlobals<ReleaseOptions>();
      const outcome = await withServices(options, ({ locks }) => release(locks, name, yes ?? !process.stdin.isTTY));
      if (!outcome.released) process.exitCode = EXIT.notFound;
      const { released, info } = outcome;
      print(json, { name, released, from: info && fieldsOf({ key: name, ...info }) }, () =>
        textOf(name, outcome, placeOf(options)),
      );
    });
}

async function release(locks: LockService, name: string, sure: boolean): Promise<Outcome> {
  const info = await locks.inspect(name);
  if (!info) return { released: false, info };
  if (!sure && !(await confirmed(`Take "${visible(name)}" from ${describe(info)}? [y/N] `))) {
    return { released: false, info, refused: true };
  }
  return { released: await locks.forceRelease(name), info };
}

async function confirmed(question: string): Promise<boolean> {
  // Stdout is for the result.
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const ended = new Promise<string>((resolve) => terminal.once('close', () => resolve('')));
  try {
    return /^y(es)?$/i.test(await Promise.race([terminal.question(question), ended]));
  } finally {
    terminal.close();
  }
}

function textOf(name: string, { released, info, refused }: Outcome, place: string): string {
  if (info && released) return `Took "${visible(name)}" from ${describe(info)}`;
  return refused ? `Left "${visible(name)}" as it was` : `Nobody holds "${visible(name)}"${place}`;
}

function describe(info: LockInfo): string {
  const token = info.fencingToken === null ? '' : `, fencing token ${info.fencingToken}`;
  return `${holderOf(info)} (owner ${visible(info.owner)}${token})`;
}
