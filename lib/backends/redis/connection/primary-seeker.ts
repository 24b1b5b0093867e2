import type { Notice } from '../../../contracts/start-request.js';
import { isCluster, type RedisClient, type RedisNode } from '../redis-client.js';
import { serverOf } from './server-address.js';

/**
 * Milliseconds before the next reconnect when the connection still leads to a replica. Doubles each time.
 */
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8_000;
/** A read-only reply later than this (ms) after the previous one begins a new episode. */
const QUIET = 60_000;

/**
 * Reconnects when Redis answers that it has become a replica. The connection to the old primary stays open after a
 * failover, although its host name may lead to the new primary.
 */
export class PrimarySeeker {
  private pause = 0;
  private lastTry = -Infinity;
  private lastReply = -Infinity;

  constructor(
    private readonly client: RedisClient,
    private readonly report: (notice: Notice) => void,
  ) {}

  /** Called for each error that Redis answers. */
  answered(error: Error): void {
    // A node of a Cluster answers MOVED, which the client follows.
    const { client } = this;
    if (isCluster(client) || !error.message.includes('READONLY')) return;
    const now = performance.now();
    const reconnects = wouldReconnect(client);
    if (now - this.lastReply > QUIET) {
      this.pause = 0;
      this.warn(reconnects);
    }
    this.lastReply = now;
    if (!reconnects || client.status !== 'ready' || now - this.lastTry < this.pause) return;
    this.lastTry = now;
    this.pause = Math.min(Math.max(2 * this.pause, FIRST_PAUSE), LONGEST_PAUSE);
    client.disconnect(true);
  }

  private warn(reconnects: boolean): void {
    const remedy = reconnects
      ? 'reconnecting until the connection leads to the primary'
      : 'the retryStrategy of its client does not reconnect: connect it to the primary';
    this.report({ level: 'warn', message: `${serverOf(this.client)} is read-only, as a replica is: ${remedy}` });
  }
}

/** Reconnecting would close a client for good if its retry strategy refuses. */
function wouldReconnect({ options }: RedisNode): boolean {
  return typeof options.retryStrategy === 'function' && typeof options.retryStrategy(1) === 'number';
}
