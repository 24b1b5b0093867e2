import type { EtcdClient } from './etcd-client.js';
import type { EtcdNames } from './etcd-names.js';
import { decode, get } from './etcd-transactions.js';

/** How many keys are read in one transaction. */
const KEYS_AT_ONCE = 100;
/** How long (ms) an unanswered request may still be carried out: a server that stood still goes on with it. */
const LONGEST_DOUBT = 600_000;
/** Looks in the life of a lease while a server does not answer, and right after a doubt. */
const URGENT_LOOKS = 3;

/**
 * Releases what this process owns without knowing it. A request that got no answer may be carried out much later, by a
 * server that stood still; its session would keep the name for as long as the process lives. So the keys of the session
 * are looked through while an endpoint does not answer, and for ten minutes after the last doubt: behind one URL, other
 * members may answer while one stands still.
 */
export class EtcdSweep {
  private timer: NodeJS.Timeout | undefined;
  private closed = false;
  private looking = false;
  /** Whether the next look comes soon. */
  private urgent = false;
  /** Until when to go on looking, on the monotonic clock. */
  private until = 0;

  constructor(
    private readonly client: EtcdClient,
    private readonly names: EtcdNames,
    /** The life of the lease in ms. */
    private readonly ttl: number,
  ) {}

  /** Looks soon, and goes on looking. */
  start(): void {
    this.until = performance.now() + LONGEST_DOUBT;
    if (this.urgent) return;
    this.urgent = true;
    if (!this.looking) this.schedule();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
  }

  private schedule(): void {
    if (this.closed) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.look(), this.urgent ? this.ttl / URGENT_LOOKS : this.ttl).unref();
  }

  private async look(): Promise<void> {
    this.looking = true;
    this.urgent = this.client.failures() !== undefined;
    try {
      await this.releaseUnknown();
      if (this.urgent) await this.client.askFailed();
    } catch {
      this.urgent = true;
    }
    this.looking = false;
    if (this.urgent || performance.now() < this.until) this.schedule();
  }

  private async releaseUnknown(): Promise<void> {
    const { sessions, keys, transactions } = this.names;
    const lease = sessions.present?.lease;
    if (lease === undefined) return;
    const { answer } = await this.client.call<{ keys?: readonly string[] }>('/v3/lease/timetolive', {
      ID: lease,
      keys: true,
    });
    const ours = (answer.keys ?? []).map(decode).filter((key) => keys.lockIn(key));
    for (let from = 0; from < ours.length; from += KEYS_AT_ONCE) {
      const some = ours.slice(from, from + KEYS_AT_ONCE);
      const outcome = await transactions.read(some.map(get));
      for (const index of some.keys()) {
        const kv = outcome.first(index);
        const found = kv && keys.lockIn(decode(kv.key));
        // The name may have passed to another process since its key was listed.
        if (!found || kv.lease !== lease) continue;
        const ticket = found.waiter ?? decode(kv.value);
        if (!sessions.knows(ticket)) await this.names.releaseOne(found.lock, ticket);
      }
    }
  }
}
