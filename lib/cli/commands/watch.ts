import { setTimeout as sleep } from 'node:timers/promises';
import { InvalidArgumentError, type Command } from 'commander';
import { parseDuration } from '../../options/duration.js';
import type { LockService } from '../../lock/lock.service.js';
import { lineOf } from '../failure.js';
import type { GlobalOptions } from '../global-options.js';
import type { LockFields } from '../../admin/lock-fields.js';
import { Screen } from '../output/screen.js';
import { lockTable } from '../output/tables.js';
import { withServices } from '../services.js';
import { limitOption } from './limit-option.js';
import { heldLocks } from './list.js';

interface WatchOptions extends GlobalOptions {
  readonly interval: number;
  readonly limit: number;
}

export function addWatchCommand(root: Command): void {
  root
    .command('watch')
    .description('shows the locks that are held again and again, until Ctrl-C; with --json a line each time')
    .argument('[pattern]', 'a glob of Redis that the names match', '*')
    .option('--interval <time>', 'how often', interval, 1_000)
    .addOption(limitOption())
    .action(async (pattern: string, _own: unknown, command: Command) => {
      const options = command.optsWithGlobals<WatchOptions>();
      const stopped = new AbortController();
      const stop = () => stopped.abort();
      process.once('SIGINT', stop).once('SIGTERM', stop);
      await withServices(options, ({ locks }) => watch(locks, pattern, options, stopped.signal));
      process.off('SIGINT', stop).off('SIGTERM', stop);
    });
}

async function watch(locks: LockService, pattern: string, options: WatchOptions, stopped: AbortSignal): Promise<void> {
  const { json, interval: pause, limit } = options;
  // Before the screen is drawn, so that wrong options and a server that does not answer end the program.
  let found = await heldLocks(locks, pattern, limit);
  let problem: string | undefined;
  const screen = new Screen();
  if (!json) screen.open();
  try {
    while (!stopped.aborted) {
      const at = new Date().toISOString();
      if (json) process.stdout.write(`${JSON.stringify({ at, locks: found.locks, ...(problem && { problem }) })}\n`);
      else screen.draw(linesOf(found.locks, pattern, at, problem));
      await sleep(pause, undefined, { signal: stopped }).catch(() => {});
      if (stopped.aborted) break;
      try {
        found = await heldLocks(locks, pattern, limit);
        problem = undefined;
      } catch (error) {
        problem = lineOf(error);
      }
    }
  } finally {
    if (!json) screen.close();
  }
}

function linesOf(locks: readonly LockFields[], pattern: string, at: string, problem: string | undefined): string[] {
  const heading = `${at}  locks that match "${pattern}": ${locks.length}`;
  const state = problem === undefined ? [] : [`As of the last answer: ${problem}`];
  return [heading, ...state, '', ...lockTable(locks).split('\n')];
}

function interval(value: string): number {
  const milliseconds = parseDuration(value);
  if (milliseconds !== undefined && milliseconds >= 100) return milliseconds;
  throw new InvalidArgumentError("Give a time of 100 ms or more, such as '2s'.");
}
