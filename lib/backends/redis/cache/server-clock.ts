import type { Cluster, Redis } from 'ioredis';
import type { ScriptRunner } from '../scripting/script-runner.js';

/**
 * How long (ms) the clocks are taken to run at one rate; they are read anew, beside what is asked, from half of it on.
 */
const TRUSTED = 30_000;

interface Reading {
  readonly ahead: number;
  readonly readAt: number;
  readonly disconnects: number;
}

/**
 * How many ms the clock of the server is ahead of the monotonic one here, rather less than more; in a Cluster that of
 * the master which is the most behind.
 */
export class ServerClock {
  private known: Reading | undefined;
  private reading: Promise<number> | undefined;

  constructor(private readonly scripts: ScriptRunner) {}

  /** `undefined` where it has to be read first. */
  get ahead(): number | undefined {
    const { known, scripts } = this;
    // After a disconnect it may be another server.
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
        const [seconds, micros] = (await node.time()).map(Number) as [number, number];
        return aheadBy(seconds * 1_000 + micros / 1_000);
      }),
    );
    const ahead = Math.min(...all);
    this.known = { ahead, readAt: performance.now(), disconnects };
    return ahead;
  }
}

/** For a time (ms) that the server has just told. */
export function aheadBy(serverTime: number): number {
  return serverTime - performance.now();
}
