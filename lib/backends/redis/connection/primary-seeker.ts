import type { Redis } from 'ioredis';
import type { Notice } from '../../../contracts/start-request.js';
import type { RedisClient } from '../redis-client.js';
import { serverOf } from './server-address.js';

/**
 * How long (ms) until the connection is made anew again, where it still leads to the replica; twice as long each time.
 */
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8_000;
/** How long (ms) after the last such reply the next one is another event. */
const QUIET = 60_000;

/**
 * Connects anew where Redis says that it became a replica. A name or an address that always leads to the primary leads
 * to another server then, but the connection to the former one stays open.
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
    // The nodes of a Cluster answer MOVED, which ioredis follows.
    if (this.client.isCluster || !error.message.includes('READONLY')) return;
    const client = this.client as Redis;
    const now = performance.now();
    const reconnects = goesOnConnecting(client);
    if (now - this.lastReply > QUIET) {
      this.pause = 0;
      this.tell(reconnects);
    }
    this.lastReply = now;
    if (!reconnects || client.status !== 'ready' || now - this.lastTry < this.pause) return;
    this.lastTry = now;
    this.pause = Math.min(Math.max(2 * this.pause, FIRST_PAUSE), LONGEST_PAUSE);
    client.disconnect(true);
  }

  private tell(reconnects: boolean): void {
    const remedy = reconnects
      ? 'connecting anew, until it leads to the primary'
      : 'its client gives up when it is closed (retryStrategy): connect it to the primary';
    this.report({ level: 'warn', message: `${serverOf(this.client)} is read-only, as a replica is: ${remedy}` });
  }
}

/** A client whose strategy says no would be closed for good. */
function goesOnConnecting({ options }: Redis): boolean {
  return typeof options.retryStrategy === 'function' && typeof options.retryStrategy(1) === 'number';
}
