import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { BackendCalls } from '../grant/store.js';

/** How long (ms) the label outlives its process: longer than most leases. */
const EXPIRY = 60 * 60 * 1_000;
/** How often (ms) the label is written again, in case the store has lost it. */
const PERIOD = 60 * 1_000;

export function defaultLabel(): string {
  return `${hostname()}:${process.pid}`;
}

/**
 * The name in the package.json next to the main file, or above it; without one, and where the main file is of a package
 * that runs applications, that of the working directory. `undefined` without any.
 */
export function defaultApplication(): string | undefined {
  const main = process.argv[1];
  const ofMain =
    main === undefined || /[\\/]node_modules[\\/]/.test(main) ? undefined : nameAbove(dirname(resolve(main)));
  return ofMain ?? nameAbove(process.cwd());
}

function nameAbove(folder: string): string | undefined {
  const above = dirname(folder);
  return packageName(join(folder, 'package.json')) ?? (above === folder ? undefined : nameAbove(above));
}

function packageName(file: string): string | undefined {
  try {
    const { name } = JSON.parse(readFileSync(file, 'utf8')) as { readonly name?: unknown };
    return typeof name === 'string' && name.isWellFormed() && name !== '' ? name : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Stores at the backend who this process is, so that `inspect` can name the holder in any process: with the first
 * ticket, then once a minute. No lock depends on it.
 */
export class ProcessLabel {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly calls: BackendCalls,
    readonly text: string,
  ) {}

  announce(): void {
    if (!this.calls.store.label) return;
    void this.write(EXPIRY);
    this.timer = setInterval(() => void this.write(EXPIRY), PERIOD).unref();
  }

  /** Removes the label: the process holds no lock any more. */
  async withdraw(): Promise<void> {
    if (!this.timer) return;
    clearInterval(this.timer);
    this.timer = undefined;
    await this.write(0);
  }

  private async write(ttl: number): Promise<void> {
    try {
      await this.calls.label(this.text, ttl);
    } catch {
      // The next attempt follows a minute later.
    }
  }
}
