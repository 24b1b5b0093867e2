import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { build, type Histogram } from 'hdr-histogram-js';
import type { Strategy } from '../deduction/strategy.js';
import { answerOf, kindOfError, type Answer } from './answer.js';
import { OrderClient, type Reply } from './order-client.js';
import type { Shop } from './shop-process.js';
import { Standstill } from './standstill.js';

/** What the clients of the shop saw. */
export interface LoadResult {
  readonly accepted: number;
  readonly outOfStock: number;
  /** Answered that the product is too busy: 423, or a strategy that gave up. */
  readonly busy: number;
  /** Orders that failed or were never answered, with the number of each kind of error. */
  readonly errors: number;
  readonly errorKinds: Readonly<Record<string, number>>;
  /** How often an order was sent again. */
  readonly resent: number;
  /** Accepted orders a second, until the last of them. */
  readonly soldPerSecond: number;
  /** Milliseconds from sending an order to its answer; with orders that are sent again, to the last one. */
  readonly p50: number;
  readonly p99: number;
  readonly longestWait: number;
  /** Milliseconds: the longest time in which no order was accepted, until the last was. */
  readonly standstill: number;
}

export interface Load {
  readonly shops: readonly Shop[];
  readonly strategy: Strategy;
  readonly sku: string;
  readonly orders: number;
  readonly concurrency: number;
  /** Seconds that the sale may take at most. */
  readonly timeLimit: number;
  /** Whether there is a reason, such as a fault, to send an unanswered order again. */
  readonly sendAgain: () => boolean;
  readonly onAnswer: (answer: Answer, shop: Shop) => void;
  /** Called for each attempt with what will come of it, which may be long after the order was sent again. */
  readonly onAttempt?: (shop: Shop, reply: Promise<Reply | Error>) => void;
  /** Called when no order has been answered for a while. */
  readonly onSilence: (message: string) => void;
  readonly signal?: AbortSignal;
}

/**
 * Milliseconds after which an order counts as unanswered: more than the shop waits for locks and its database, also on
 * a machine that others keep busy. A sale in which nothing is answered ends sooner.
 */
const PATIENCE = 60_000;
/**
 * The same if there is a reason to send the order again: more than the lease of a lock, which delays healthy shops.
 */
const PATIENCE_AMID_FAULTS = 4_000;
/** Milliseconds before an order is sent for a third time, and so on. */
const PAUSE = 100;

/**
 * Sends orders of one piece, each with a number of its own, to all processes at once. The latencies are in
 * microseconds.
 */
export async function sendOrders(load: Load): Promise<{ result: LoadResult; latency: Histogram }> {
  return new Sale(load).run();
}

class Sale {
  private readonly seen: Record<Answer, number> = { accepted: 0, outOfStock: 0, busy: 0, errors: 0 };
  private readonly errorKinds: Record<string, number> = {};
  private readonly latency = build();
  private readonly client = new OrderClient();
  /** Requests whose orders were sent again, but which may still be answered. */
  private readonly late: Promise<unknown>[] = [];
  private readonly standstill: Standstill;
  private sent = 0;
  private resent = 0;
  private longestWait = 0;

  constructor(private readonly load: Load) {
    this.standstill = new Standstill(load.timeLimit, load.onSilence, load.signal);
    setMaxListeners(0, this.standstill.signal);
  }

  async run(): Promise<{ result: LoadResult; latency: Histogram }> {
    const { orders, concurrency } = this.load;
    try {
      await Promise.all(Array.from({ length: Math.min(concurrency, orders) }, (_, index) => this.customer(index)));
      // Their changes must be done before the sale is audited.
      await Promise.all(this.late);
    } finally {
      this.standstill.stop();
      this.client[Symbol.dispose]();
    }
    const unsent = orders - this.sent;
    if (unsent > 0) this.fail('not sent', unsent);
    return { result: this.result(), latency: this.latency };
  }

  /** Places one order after the other, until none is left. */
  private async customer(index: number): Promise<void> {
    while (this.sent < this.load.orders && !this.standstill.signal.aborted) {
      this.sent += 1;
      await this.place(`${this.load.sku}-${this.sent}`, index);
    }
  }

  private async place(orderId: string, firstShop: number): Promise<void> {
    const { shops, sendAgain, onAnswer } = this.load;
    const start = performance.now();
    for (let attempt = 0; ; attempt++) {
      const shop = shops[(firstShop + attempt) % shops.length] as Shop;
      const reply = await this.ask(shop, orderId);
      const answer = reply instanceof Error ? 'errors' : answerOf(reply);
      const unsettled = answer === 'errors' || answer === 'busy';
      if (!unsettled || !sendAgain() || this.standstill.signal.aborted) {
        const waited = performance.now() - start;
        this.latency.recordValue(waited * 1_000);
        this.longestWait = Math.max(this.longestWait, waited);
        if (answer === 'errors') this.fail(kindOfError(reply));
        else this.settle(answer);
        onAnswer(answer, shop);
        return;
      }
      this.resent += 1;
      if (attempt > 0) await sleep(PAUSE);
    }
  }

  private settle(answer: Exclude<Answer, 'errors'>): void {
    this.seen[answer] += 1;
    this.standstill.answered(answer === 'accepted');
  }

  private fail(kind: string, times = 1): void {
    this.seen.errors += times;
    this.errorKinds[kind] = (this.errorKinds[kind] ?? 0) + times;
  }

  /**
   * One attempt. An order that will be sent again leaves its request open; the shop must finish it before the end.
   */
  private async ask(shop: Shop, orderId: string): Promise<Reply | Error> {
    const { strategy, sku, sendAgain, onAttempt } = this.load;
    const url = `${shop.url}/products/${encodeURIComponent(sku)}/deduct?strategy=${strategy}`;
    const signal = AbortSignal.any([this.standstill.signal, AbortSignal.timeout(PATIENCE)]);
    const asked = this.client.post(url, { quantity: 1, orderId }, signal).catch(asError);
    onAttempt?.(shop, asked);
    const impatience = new AbortController();
    const first = await Promise.race([asked, impatient(sendAgain, impatience.signal)]);
    impatience.abort();
    if (first !== undefined) return first;
    this.late.push(asked);
    return new DOMException('no answer', 'TimeoutError');
  }

  private result(): LoadResult {
    const { lastAccepted, longest } = this.standstill;
    return {
      ...this.seen,
      errorKinds: this.errorKinds,
      resent: this.resent,
      soldPerSecond: this.seen.accepted === 0 ? 0 : (this.seen.accepted * 1_000) / lastAccepted,
      p50: this.latency.getValueAtPercentile(50) / 1_000,
      p99: this.latency.getValueAtPercentile(99) / 1_000,
      longestWait: this.longestWait,
      standstill: longest,
    };
  }
}

/** Resolves to undefined when an order has waited long enough and may be sent again. */
async function impatient(sendAgain: () => boolean, signal: AbortSignal): Promise<undefined> {
  do {
    await sleep(PATIENCE_AMID_FAULTS, undefined, { signal }).catch(() => {});
  } while (!sendAgain() && !signal.aborted);
  return undefined;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
