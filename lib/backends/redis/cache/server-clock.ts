import { mastersOf } from '../redis-client.js';
import type { ScriptRunner } from '../scripting/script-runner.js';

/** How long (ms) a reading is used. After half of it, the clock is read again in the background. */
const TRUSTED = 30_000;

interface Reading {
  readonly ahead: number;
  readonly readAt: number;
  readonly disconnects: number;
}

/**
 * The difference in ms between the server's clock and the monotonic clock of this process. In a Cluster, that of the
 * master whose clock is furthest behind.
 */
export class ServerClock {
  private known: Reading | undefined;
  private reading: Promise<number> | undefined;

  constructor(private readonly scripts: ScriptRunner) {}

  /** `undefined` when the clock has to be read first. */
  get ahead(): number | undefined {
    const { known, scripts } = this;
    // The new connection may lead to another server.
    if (!known || known.disconnects !== scripts.disconnects) return undefined;
    const age = performance.now() - known.readAt;
    if (age > TRUSTED) return undefined;
    if (age > TRUSTED / 2) this.read().catch(() => {});
    return known.ahead;
  }

  read(): Promise<number> {
    this.reading ??= this.ask().finally(() => (this.reading = undefined));
    return this.reading;
  }

  private async ask(): Promise<number> {
    const { client, disconnects } = this.scripts;
    const all = await Promise.all(
      mastersOf(client).map(async (node) => {
        const [seconds, micros] = (await this.scripts.command(() => node.time())).map(Number) as [number, number];
        return aheadBy(seconds * 1_000 + micros / 1_000);
      }),
    );
    const ahead = Math.min(...all);
    this.known = { ahead, readAt: performance.now(), disconnects };
    return ahead;
  }
}

/** The difference in ms, from a time that the server has just answered. */
export function aheadBy(serverTime: number): number {
  return serverTime - performance.now();
}
