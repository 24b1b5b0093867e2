#!/usr/bin/env node
import { Logger } from '@nestjs/common';
import { CommanderError } from 'commander';
import { EXIT, exitCodeOf, lineOf } from './failure.js';
import { program } from './program.js';

// What the library logs is for applications: the errors say the same here.
Logger.overrideLogger(false);
// The reader of a pipe may end first, as `head` does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXIT.done);
  throw error;
});

try {
  await program().parseAsync();
} catch (error) {
  // Commander has printed its own errors.
  if (!(error instanceof CommanderError)) process.stderr.write(`nest-redis-lock: ${lineOf(error)}\n`);
  process.exitCode = exitCodeOf(error);
}
