import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds that a payment takes. */
const LATENCY = 50;

/**
 * A payment provider of the demo's own. It counts the calls itself, outside of all locks, and charges an order once.
 */
export class PaymentProvider implements AsyncDisposable {
  /** The most calls at once since `gather`. */
  mostAtOnce = 0;
  private atOnce = 0;
  /** Calls for each order. */
  private readonly calls = new Map<string, number>();
  private readonly charged = new Map<string, string>();
  private readonly held = new Map<string, () => void>();
  private gathering: Gathering | undefined;

  private constructor(private readonly server: Server) {}

  static async start(): Promise<PaymentProvider> {
    const server = createServer();
    const provider = new PaymentProvider(server);
    server.on('request', (request, response) => void provider.answer(request, response));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return provider;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/payments`;
  }

  /** Calls for the orders whose numbers start with this. */
  callsFor(orders: string): number {
    return [...this.calls].reduce((sum, [order, calls]) => sum + (order.startsWith(orders) ? calls : 0), 0);
  }

  /** Orders charged whose numbers start with this. */
  chargesFor(orders: string): number {
    return [...this.charged.keys()].filter((order) => order.startsWith(orders)).length;
  }

  /** Charges the first call for this order and never answers it. Resolves once the call has arrived. */
  hold(order: string): Promise<void> {
    return new Promise((resolve) => this.held.set(order, resolve));
  }

  /**
   * Answers no call until more than `limit` calls are there at once, or until `patience` ms after `limit` of them are
   * there: slow processes reach the limit, too, and a call beyond it has time to arrive. Returns what ends that now.
   */
  gather(limit: number, patience: number): () => void {
    this.mostAtOnce = 0;
    this.gathering = new Gathering(limit, patience);
    return this.gathering.end;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    await closed;
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.atOnce += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.atOnce);
    response.once('close', () => (this.atOnce -= 1));
    request.resume();
    const order = decodeURIComponent(String(request.headers['idempotency-key']));
    this.calls.set(order, (this.calls.get(order) ?? 0) + 1);
    const payment = this.charged.get(order) ?? `payment-${this.charged.size + 1}`;
    this.charged.set(order, payment);
    const arrived = this.held.get(order);
    if (arrived) {
      this.held.delete(order);
      arrived();
      return;
    }
    await (this.gathering?.wait(this.atOnce) ?? sleep(LATENCY));
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ payment }));
  }
}

/** Milliseconds that calls are kept at most where the limit is never reached. */
const LONGEST_GATHERING = 10_000;

class Gathering {
  private readonly over: Promise<void>;
  end!: () => void;
  private timer: NodeJS.Timeout;
  private ended = false;

  constructor(
    private readonly limit: number,
    private readonly patience: number,
  ) {
    this.over = new Promise((resolve) => (this.end = resolve));
    this.timer = setTimeout(this.end, LONGEST_GATHERING);
    void this.over.then(() => {
      this.ended = true;
      clearTimeout(this.timer);
    });
  }

  /** Resolves when a call may be answered; `atOnce` counts it and those before it. */
  async wait(atOnce: number): Promise<void> {
    if (this.ended) return sleep(LATENCY);
    if (atOnce > this.limit) this.end();
    else if (atOnce === this.limit) {
      clearTimeout(this.timer);
      this.timer = setTimeout(this.end, this.patience);
    }
    return this.over;
  }
}
