import { inspect } from 'node:util';
import type { Logger } from '@nestjs/common';

/** How long (ms) after a line further ones of its kind are counted instead of written. */
const QUIET_PERIOD = 60_000;
/** How many kinds there are at a time at most. All further lines of one level are one kind. */
const MOST_KINDS = 100;
/** Where lines of one kind differ: quoted names and keys, ids, and numbers that are part of no address. */
const PARTICULARS =
  /"[^"]*"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?::\d+)?|(?<![\w.:])\d+(?:[.,]\d+)*(?![\w.:]*\d)/g;

type Level = 'warn' | 'error';

interface Quiet {
  readonly level: Level;
  /** The last line that was not written. */
  last: string;
  withheld: number;
  readonly timer: NodeJS.Timeout;
}

/** What writes warnings. */
export type Warnings = Pick<LimitedLog, 'warn'>;

/**
 * The log of the library, for trouble that may come thousands of times a second: writes one warning or error of each
 * kind at once, and then one a minute, with the number of those that it left out. Lines of other levels pass.
 */
export class LimitedLog {
  private readonly kinds = new Map<string, Quiet>();

  constructor(private readonly logger: Pick<Logger, 'debug' | 'log' | 'warn' | 'error'>) {}

  debug(message: string): void {
    this.logger.debug(message);
  }

  log(message: string): void {
    this.logger.log(message);
  }

  /** `kind` says what counts as the same trouble: by default, the line without its names, ids and numbers. */
  warn(message: string, kind = kindOf(message)): void {
    this.write('warn', message, kind);
  }

  /** As `warn`. */
  error(message: string, kind = kindOf(message)): void {
    this.write('error', message, kind);
  }

  /** Writes what is left to be said of lines that were not written: the application ends. */
  flush(): void {
    for (const [kind, quiet] of this.kinds) {
      clearTimeout(quiet.timer);
      this.kinds.delete(kind);
      this.summarize(quiet);
    }
  }

  private write(level: Level, message: string, subject: string): void {
    let kind = `${level} ${subject}`;
    if (this.kinds.size >= MOST_KINDS && !this.kinds.has(kind)) kind = level;
    const quiet = this.kinds.get(kind);
    if (quiet) {
      quiet.last = message;
      quiet.withheld += 1;
      return;
    }
    this.logger[level](message);
    this.beQuiet(kind, level);
  }

  private beQuiet(kind: string, level: Level): void {
    const over = () => {
      const quiet = this.kinds.get(kind) as Quiet;
      this.kinds.delete(kind);
      if (this.summarize(quiet)) this.beQuiet(kind, level);
    };
    this.kinds.set(kind, { level, last: '', withheld: 0, timer: setTimeout(over, QUIET_PERIOD).unref() });
  }

  /** Returns whether there was something to write. */
  private summarize({ level, last, withheld }: Quiet): boolean {
    if (withheld === 0) return false;
    const leftOut = withheld === 1 ? '' : ` (and ${withheld - 1} more of this kind, left out in the last minute)`;
    this.logger[level](last + leftOut);
    return true;
  }
}

/**
 * The text of anything that was thrown, for lines and messages: never throws, whatever it is. An object without a
 * prototype, a revoked proxy, or an error with a getter that throws would otherwise turn the telling into an error.
 */
export function textOf(thrown: unknown): string {
  return firstText(
    () => String(thrown),
    () => inspect(thrown, { depth: 0, customInspect: false, getters: false }),
  );
}

/** Whether what was thrown is of the class. `instanceof` throws for a revoked proxy, for which a wait must end, too. */
export function isThrown<T>(thrown: unknown, type: abstract new (...args: never[]) => T): thrown is T {
  try {
    return thrown instanceof type;
  } catch {
    return false;
  }
}

/** As `textOf`, but of an error only its message. */
export function messageOf(thrown: unknown): string {
  return firstText(
    () => (thrown instanceof Error ? thrown.message : String(thrown)),
    () => textOf(thrown),
  );
}

/** As `textOf`, but of an error with its stack. */
export function stackOf(thrown: unknown): string {
  return firstText(
    () => (thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown)),
    () => textOf(thrown),
  );
}

/**
 * Shows an error as its message, without frames and cause: its message tells all of it, and the error that it caused is
 * printed with each. `cause` keeps what it had.
 */
export function tellInOneLine<T extends Error>(error: T): T {
  const line = `${error.name}: ${error.message}`;
  // Not by assignment: it throws where the error is frozen.
  Reflect.defineProperty(error, 'stack', { configurable: true, writable: true, value: line });
  Reflect.defineProperty(error, inspect.custom, { configurable: true, value: () => line });
  return error;
}

function firstText(...makers: (() => unknown)[]): string {
  for (const make of makers) {
    try {
      const text = make();
      if (typeof text === 'string') return text;
    } catch {
      // The next one may.
    }
  }
  return 'something without a text';
}

function kindOf(message: string): string {
  return message.replace(PARTICULARS, '#');
}
