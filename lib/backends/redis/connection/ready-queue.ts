import type { Cluster, Redis } from 'ioredis';
import type { RedisClient } from '../redis-client.js';

interface WaitingCall {
  readonly send: () => void;
  readonly failed: (error: unknown) => void;
}

const ON_THE_WAY = new Set(['connecting', 'connect', 'close', 'reconnecting', 'disconnecting']);

/**
 * Calls that wait for the connection. The offline queue of a client that retries for long keeps every call until Redis
 * is back, and sends it then, when nobody waits for its answer any more; here they wait for `patience` after the first
 * one, and later ones not at all.
 */
export class ReadyQueue {
  /** Milliseconds that a call waits for the connection at most. */
  patience = 1_000;
  private waiting: WaitingCall[] = [];
  private timer: NodeJS.Timeout | undefined;
  private over = false;
  private readonly onReady = () => {
    this.over = false;
    for (const { send } of this.taken()) send();
  };
  private readonly onEnd = () => this.failAll();

  constructor(
    private readonly client: RedisClient,
    private readonly whyNot: () => Error,
  ) {
    client.on('ready', this.onReady);
    client.on('end', this.onEnd);
  }

  /** For a call that finds the client not ready: whether it waits here, and is sent or fails later. */
  take(send: () => void, failed: (error: unknown) => void): boolean {
    if (!ON_THE_WAY.has(this.client.status)) return false;
    // The caller attaches its listeners in this turn, after this function returns.
    if (this.over) queueMicrotask(() => failed(this.whyNot()));
    else {
      this.waiting.push({ send, failed });
      this.timer ??= setTimeout(() => {
        this.over = true;
        this.failAll();
      }, this.patience).unref();
    }
    return true;
  }

  close(): void {
    this.client.off('ready', this.onReady);
    this.client.off('end', this.onEnd);
    this.failAll();
  }

  private failAll(): void {
    const waiting = this.taken();
    if (waiting.length === 0) return;
    const error = this.whyNot();
    for (const { failed } of waiting) failed(error);
  }

  private taken(): readonly WaitingCall[] {
    const { waiting } = this;
    this.waiting = [];
    clearTimeout(this.timer);
    this.timer = undefined;
    return waiting;
  }
}

/** Whether the client keeps what it cannot send for longer than until the next failed try to connect. */
export function queuesForLong(client: RedisClient): boolean {
  if (client.isCluster) return (client as Cluster).options.enableOfflineQueue !== false;
  const { enableOfflineQueue, maxRetriesPerRequest } = (client as Redis).options;
  return enableOfflineQueue !== false && (maxRetriesPerRequest == null || maxRetriesPerRequest > 1);
}
