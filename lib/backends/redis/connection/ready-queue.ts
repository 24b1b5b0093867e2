import type { EventEmitter } from 'node:events';
import { isCluster, type RedisClient } from '../redis-client.js';

interface WaitingCall {
  readonly send: () => void;
  readonly failed: (error: unknown) => void;
}

const ON_THE_WAY = new Set(['connecting', 'connect', 'close', 'reconnecting', 'disconnecting']);

/**
 * Holds calls until the connection is ready. The offline queue of a client that retries for long would keep every call
 * until Redis is back, and send it when nobody waits for the answer any more. Here calls wait until `patience` ms after
 * the first of them; later ones fail at once.
 */
export class ReadyQueue {
  /** How long (ms) calls wait for the connection at most. */
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
    private readonly client: Pick<RedisClient, 'status'> & EventEmitter,
    private readonly whyNot: () => Error,
  ) {
    client.on('ready', this.onReady);
    client.on('end', this.onEnd);
  }

  /**
   * Takes a call that finds the client not ready, to send or fail it later. Returns `false` when the call does not have
   * to wait here.
   */
  take(send: () => void, failed: (error: unknown) => void): boolean {
    if (!ON_THE_WAY.has(this.client.status)) return false;
    // The caller attaches its listeners after this function returns.
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

/** Whether the client's own queue holds a command for longer than until the next failed connection attempt. */
export function queuesForLong(client: RedisClient): boolean {
  if (isCluster(client)) return client.options.enableOfflineQueue !== false;
  const { enableOfflineQueue, maxRetriesPerRequest } = client.options;
  return enableOfflineQueue !== false && (maxRetriesPerRequest == null || maxRetriesPerRequest > 1);
}
