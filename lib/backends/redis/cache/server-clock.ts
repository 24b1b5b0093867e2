import type { Cluster, Redis } from 'ioredis';
import type { ScriptRunner } from '../scripting/script-runner.js';

/** For how long (ms) a reading counts. From half of it on, the clock is read again in the background. */
const TRUSTED = 30_000;

interface Reading {
  readonly ahead: number;
  readonly readAt: number;
  readonly disconnects: number;
}

/**
 * How many ms the clock of the server is ahead of the monotonic clock of this process, at least; in a Cluster, that of
 * the master whose clock is furthest behind.
 */
export class ServerClock {
  private known: Reading | undefined;
  private reading: Promise<number> | undefined;

  constructor(private readonly scripts: ScriptRunner) {}

  /** `undefined` where the clock has to be read first. */
  get ahead(): number | undefined {
    const { known, scripts } = this;
    // After a lost connection it may be another server.
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
    const nodes = client.isCluster ? (client as Cluster).nodes('master') : [client as Redis];
    const all = await Promise.all(
      nodes.map(async (node) => {
        const [seconds, micros] = (await this.scripts.command(() => node.time())).map(Number) as [number, number];
        return aheadBy(seconds * 1_000 + micros / 1_000);
      }),
    );
    const ahead = Math.min(...all);
    this.known = { ahead, readAt: performance.now(), disconnects };
    return ahead;
  }
}

/** How far the server is ahead, from a time (ms) that it has just answered. */
export function aheadBy(serverTime: number): number {
  return serverTime - performance.now();
}
