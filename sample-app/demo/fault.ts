import { setTimeout as sleep } from 'node:timers/promises';
import type { Environment } from './environment.js';
import { LOCK_TTL } from './shop-facts.js';
import type { Shop } from './shop.js';

/** The faults that can strike the shop in the middle of a sale. */
export const FAULTS = ['kill', 'freeze', 'redis'] as const;

export type Fault = (typeof FAULTS)[number];

/** Longer than the lease of a lock; a shorter freeze would have no effect. */
const FREEZE = LOCK_TTL + 2_000;

export const FAULT_NAMES: Readonly<Record<Fault, string>> = {
  kill: 'a process of the shop was killed in mid-sale',
  freeze: `a process of the shop stood still for ${FREEZE / 1_000} s in mid-sale`,
  redis: `Redis stood still for ${FREEZE / 1_000} s in mid-sale`,
};

/** One fault of one sale: it strikes when a quarter of the possible pieces is sold. */
export class FaultOfSale {
  private over: Promise<void> | undefined;
  private killed: Shop | undefined;

  constructor(
    private readonly fault: Fault,
    private readonly environment: Environment,
    private readonly threshold: number,
  ) {}

  get struck(): boolean {
    return this.over !== undefined;
  }

  /** Notes that `shop` accepted an order, number `accepted` of the sale. That shop probably holds the lock now. */
  accepted(accepted: number, shop: Shop): void {
    if (!this.struck && accepted >= this.threshold) this.over = this.strike(shop);
  }

  /** Waits until the fault has passed, and replaces what it broke. */
  async repair(): Promise<void> {
    await this.over;
    if (this.killed) await this.environment.replace(this.killed);
  }

  private async strike(shop: Shop): Promise<void> {
    if (this.fault === 'kill') {
      this.killed = shop;
      return shop.process.kill();
    }
    const stopped = this.fault === 'freeze' ? shop.process : this.environment.redisProcess;
    stopped?.pause();
    await sleep(FREEZE, undefined, { ref: false });
    stopped?.resume();
  }
}
