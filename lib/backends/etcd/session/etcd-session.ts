import { backoff } from '../../../timing/backoff.js';
import { currentInstant, elapsedSince, type Instant } from '../../../timing/instant.js';
import { onceRead } from '../../../timing/once-read.js';
import type { EtcdClient } from '../client/etcd-client.js';

/** How often in its life a lease is renewed. */
const RENEWALS = 3;
/** The share of its life that a lease has left which was renewed just now. */
const FRESH = 0.9;

interface KeepAliveAnswer {
  /** Absent when the lease has ended. */
  readonly result: { readonly TTL?: string };
}

/** A lease of etcd, kept alive by us: what was written with it is gone when it ends. */
export class EtcdSession {
  private timer: NodeJS.Timeout | undefined;
  private renewing: Promise<void> | undefined;
  private failures = 0;
  private ended = false;

  private constructor(
    private readonly client: EtcdClient,
    readonly lease: string,
    private span: number,
    private base: Instant,
    private readonly onEnd: (why: Error) => void,
  ) {
    this.schedule(this.span / RENEWALS);
  }

  /** `onEnd` is called once, unless the session is revoked. @throws what the client throws */
  static async open(client: EtcdClient, seconds: number, onEnd: (why: Error) => void): Promise<EtcdSession> {
    const base = currentInstant();
    const { answer } = await client.call<{ ID: string; TTL: string }>('/v3/lease/grant', { TTL: seconds });
    return new EtcdSession(client, answer.ID, Number(answer.TTL) * 1_000, base, onEnd);
  }

  /** Milliseconds for which etcd keeps the lease at least; 0 after its end. */
  remaining(): number {
    return this.ended ? 0 : Math.max(0, this.span - elapsedSince(this.base));
  }

  get isOver(): boolean {
    return this.remaining() === 0;
  }

  /** Renews the lease, unless that was done just now. */
  async refresh(): Promise<void> {
    if (this.remaining() < FRESH * this.span) await this.renew();
  }

  /** Asks for the full life of the lease from now on. Calls at one time share one request. */
  private renew(): Promise<void> {
    return (this.renewing ??= this.renewOnce().finally(() => (this.renewing = undefined)));
  }

  /** The lease has ended, or must not be trusted any more. */
  end(why: Error): void {
    if (this.ended) return;
    this.stop();
    this.onEnd(why);
  }

  /** Ends the lease at etcd, and with it all that was written with it. */
  async revoke(): Promise<void> {
    this.stop();
    await this.client.call('/v3/lease/revoke', { ID: this.lease });
  }

  private stop(): void {
    this.ended = true;
    clearTimeout(this.timer);
  }

  private async renewOnce(): Promise<void> {
    const sentAt = currentInstant();
    const { answer } = await this.client.call<KeepAliveAnswer>('/v3/lease/keepalive', { ID: this.lease });
    const seconds = Number(answer.result.TTL ?? 0);
    if (seconds === 0) {
      return this.end(new Error(`etcd has ended lease ${this.lease}: it was not renewed in time, or was revoked`));
    }
    if (this.ended) return;
    this.failures = 0;
    this.span = seconds * 1_000;
    this.base = sentAt;
    this.schedule(this.span / RENEWALS);
  }

  private schedule(delay: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.wake(), Math.min(delay, this.remaining())).unref();
  }

  private wake(): void {
    if (this.isOver) return onceRead(() => this.endIfOver());
    this.renew().catch(() => {
      if (this.ended) return;
      this.schedule(backoff(this.failures));
      this.failures += 1;
    });
    // The request may stay unanswered until the lease has ended.
    this.schedule(this.remaining());
  }

  private endIfOver(): void {
    if (this.isOver) this.end(new Error(`lease ${this.lease} of etcd could not be renewed in time`));
  }
}
