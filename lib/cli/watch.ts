import { setTimeout as sleep } from 'node:timers/promises';
import { InvalidArgumentError, type Command } from 'commander';
import type { LockFields } from '../admin/lock-fields.js';
import type { LockService } from '../lock/lock.service.js';
import { parseDuration } from '../options/checks.js';
import { heldLocks } from './inspect.js';
import { lineOf, limitOption, type GlobalOptions } from './options.js';
import { withServices } from './services.js';
import { lockTable } from './tables.js';

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

const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

/**
 * Draws text over the text before, on the alternate screen of a terminal: what stood there before comes back at the
 * end. Prints one text below the other where stdout is no terminal.
 */
export class Screen {
  private readonly isTerminal = process.stdout.isTTY;
  private readonly restore = () => process.stdout.write(LEAVE);

  /** How many lines fit. */
  get rows(): number {
    return this.isTerminal ? process.stdout.rows : Infinity;
  }

  open(): void {
    if (!this.isTerminal) return;
    process.once('exit', this.restore);
    process.stdout.write(ENTER);
  }

  draw(lines: readonly string[]): void {
    if (!this.isTerminal) return void process.stdout.write(`${lines.join('\n')}\n`);
    const columns = process.stdout.columns;
    const cut = lines.slice(0, this.rows).map((line) => line.slice(0, columns) + CLEAR_LINE);
    process.stdout.write(HOME + cut.join('\r\n') + CLEAR_BELOW);
  }

  close(): void {
    if (!this.isTerminal) return;
    process.off('exit', this.restore);
    this.restore();
  }
}
