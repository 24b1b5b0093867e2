import type { Redis } from 'ioredis';
import type { RedisClient } from './redis-client.js';
import type { RedisScript } from './scripts/redis-script.js';

const DISCONNECT_EVENTS = ['close', '-node', 'node error'] as const;

/** Runs scripts on a client, and writes those of one turn of the event loop to the socket together. */
export class ScriptRunner {
  private corked = false;
  private written = false;
  private disconnectCount = 0;
  private readonly countDisconnect = () => {
    this.disconnectCount += 1;
  };

  constructor(readonly client: RedisClient) {
    for (const event of DISCONNECT_EVENTS) client.on(event, this.countDisconnect);
  }

  /** Grows whenever a connection ends: ioredis then resends what was not answered. */
  get disconnects(): number {
    return this.disconnectCount;
  }

  /** What scripts are told of PUBLISH: in a Cluster its answer counts the subscribers of one node only. */
  get counted(): 0 | 1 {
    return this.client.isCluster ? 0 : 1;
  }

  async run(script: RedisScript, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown> {
    this.cork();
    try {
      return await this.client.evalsha(script.sha1, keys.length, ...keys, ...args);
    } catch (error) {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return this.client.eval(script.lua, keys.length, ...keys, ...args);
    }
  }

  close(): void {
    for (const event of DISCONNECT_EVENTS) this.client.off(event, this.countDisconnect);
  }

  /** The first command of a turn is written at once, for its latency; the rest with one write at the end of the turn. */
  private cork(): void {
    if (this.corked || this.client.isCluster) return;
    if (!this.written) {
      this.written = true;
      setImmediate(() => (this.written = false));
      return;
    }
    const { stream } = this.client as Redis;
    if (!stream || typeof stream.cork !== 'function') return;
    this.corked = true;
    stream.cork();
    setImmediate(() => {
      this.corked = false;
      stream.uncork();
    });
  }
}
