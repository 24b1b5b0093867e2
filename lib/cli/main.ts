#!/usr/bin/env node
import { createRequire } from 'node:module';
import { Logger } from '@nestjs/common';
import { Command, CommanderError } from 'commander';
import { addCacheCommands } from './cache.js';
import { addInspectCommand, addListCommand } from './inspect.js';
import { addGlobalOptions, EXIT, exitCodeOf, lineOf } from './options.js';
import { addReleaseCommand } from './release.js';
import { addWatchCommand } from './watch.js';

const EXIT_CODES = `
Exit codes: 0 done; 1 not found, or refused; 2 wrong usage; 3 the store does not serve.
What each command costs: docs/operations/inspection.md`;

/** The commands and their options. Throws a `CommanderError` instead of ending the process. */
export function program(): Command {
  // As far from here as from the build of this file, dist/cjs/cli.js.
  const { version } = createRequire(import.meta.url)('../../package.json') as { version: string };
  const root = new Command('nest-redis-lock')
    .description('Shows the locks and cached values of nest-redis-lock, and takes them away')
    .version(version)
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .addHelpText('after', EXIT_CODES);
  addGlobalOptions(root);
  addListCommand(root);
  addInspectCommand(root);
  addReleaseCommand(root);
  addCacheCommands(root);
  addWatchCommand(root);
  return root;
}

// What the library logs is for applications: the errors say the same here.
Logger.overrideLogger(false);
// The reader of a pipe may end first, as `head` does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXIT.done);
  throw error;
});

async function run(): Promise<void> {
  try {
    await program().parseAsync();
  } catch (error) {
    // Commander has printed its own errors.
    if (!(error instanceof CommanderError)) process.stderr.write(`nest-redis-lock: ${lineOf(error)}\n`);
    process.exitCode = exitCodeOf(error);
  }
}

void run();
