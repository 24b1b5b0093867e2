import { setMaxListeners } from 'node:events';
import { Agent, request, type ClientRequest } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { build, type Histogram } from 'hdr-histogram-js';
import type { Strategy } from './shop-facts.js';
import type { Shop } from './shop.js';

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

/** What became of an order. */
export type Answer = 'accepted' | 'outOfStock' | 'busy' | 'errors';

/** The answer of a shop. */
export interface Reply {
  readonly status: number;
  readonly body: string;
}

/**
 * Milliseconds after which an order counts as unanswered: more than the shop waits for locks and its database, also on
 * a machine that others keep busy. A sale in which nothing is answered ends sooner.
 */
const PATIENCE = 60_000;
/**
 * The same if there is a reason to send the order again: more than a process stands still that is frozen until others
 * have taken its lock. What becomes of its order is then seen, and not the answer to the order that was sent again.
 */
const PATIENCE_AMID_FAULTS = 10_000;
/** Milliseconds before an order is sent for a third time, and so on. */
const PAUSE = 100;
/** Milliseconds without an answer until a message is shown, and until the sale is given up. */
const TELL = 3_000;
const GIVE_UP = 20_000;
/** Milliseconds between two looks for that. */
const LOOK = 250;

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

/** Watches a sale; aborts `signal` if it stands still or takes too long. */
class Standstill {
  /** Milliseconds: the longest time in which nothing was accepted. */
  longest = 0;
  /** Milliseconds from the start to the last order that was accepted. */
  lastAccepted = 0;
  private readonly ending = new AbortController();
  private readonly start = performance.now();
  private readonly timer: NodeJS.Timeout;
  private lastAnswer = 0;
  private told = false;

  constructor(
    private readonly timeLimit: number,
    private readonly onSilence: (message: string) => void,
    private readonly interruption?: AbortSignal,
  ) {
    this.timer = setInterval(() => this.look(), LOOK);
  }

  get signal(): AbortSignal {
    return this.ending.signal;
  }

  answered(accepted: boolean): void {
    this.lastAnswer = this.now();
    this.told = false;
    if (!accepted) return;
    this.longest = Math.max(this.longest, this.lastAnswer - this.lastAccepted);
    this.lastAccepted = this.lastAnswer;
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private look(): void {
    const silence = this.now() - this.lastAnswer;
    if (this.interruption?.aborted) this.ending.abort();
    else if (silence > GIVE_UP) this.end(`no order was answered for ${GIVE_UP / 1_000} s`);
    else if (this.now() > this.timeLimit * 1_000) this.end(`it took longer than ${this.timeLimit} s (--time-limit)`);
    else if (silence > TELL && !this.told) {
      this.told = true;
      this.onSilence(`no order was answered for ${TELL / 1_000} s; the sale ends if it lasts for ${GIVE_UP / 1_000} s`);
    }
  }

  private end(reason: string): void {
    if (this.ending.signal.aborted) return;
    this.onSilence(`the sale ends here: ${reason}`);
    this.ending.abort();
  }

  private now(): number {
    return performance.now() - this.start;
  }
}

function answerOf({ status, body }: Reply): Answer {
  if (status === 201) return 'accepted';
  if (status === 423) return 'busy';
  if (status !== 409) return 'errors';
  return codeOf(body) === 'OUT_OF_STOCK' ? 'outOfStock' : 'busy';
}

/** The name of this error for people, the same for all errors of its kind. */
export function kindOfError(failure: Reply | Error): string {
  if (!(failure instanceof Error)) return `${failure.status} ${codeOf(failure.body) ?? ''}`.trim();
  if (['AbortError', 'TimeoutError'].includes(failure.name)) return 'no answer';
  return (failure as NodeJS.ErrnoException).code ?? failure.message;
}

function codeOf(body: string): string | undefined {
  return /"code":"(\w+)"/.exec(body)?.[1];
}

/** Sends requests over connections that stay open. */
export class OrderClient implements Disposable {
  private readonly agent = new Agent({ keepAlive: true });

  /** Rejects when the connection breaks, or with the reason of the signal. */
  async post(url: string, body: object, signal: AbortSignal): Promise<Reply> {
    for (;;) {
      try {
        return await this.send(url, JSON.stringify(body), signal);
      } catch (error) {
        // The shop closed an idle connection just when it was used again: the request has not arrived. So may others be
        // closed, until a new one is opened.
        if (!(error instanceof StaleConnectionError)) throw error;
      }
    }
  }

  [Symbol.dispose](): void {
    this.agent.destroy();
  }

  private send(url: string, text: string, signal: AbortSignal): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
      const sent: ClientRequest = request(url, { method: 'POST', headers, agent: this.agent, signal }, (response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (part: string) => (body += part));
        response.once('end', () => resolve({ status: response.statusCode ?? 0, body }));
        response.once('error', reject);
      });
      sent.once('error', (error: NodeJS.ErrnoException) => {
        if (signal.aborted) reject(signal.reason as Error);
        else reject(sent.reusedSocket && error.code === 'ECONNRESET' ? new StaleConnectionError() : error);
      });
      sent.end(text);
    });
  }
}

class StaleConnectionError extends Error {}
