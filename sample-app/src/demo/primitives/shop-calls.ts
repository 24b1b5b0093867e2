import { setTimeout as sleep } from 'node:timers/promises';
import type { Shop } from '../shop-process.js';

const TIME_LIMIT = 30_000;
/** How often an order that failed is sent again at most, and milliseconds before that. */
const MOST_REPEATS = 10;
const PAUSE = 200;

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

export interface PlacedOrder {
  readonly orderId: string;
  readonly sku: string;
  readonly customer: string;
}

/** The last answer to an order, and how many answers before it were errors of the shop. */
export interface OrderAnswered extends Answered {
  readonly failed: number;
}

/** Orders one piece. An answer that the shop is busy or failed makes the same order be sent again, as it asks for. */
export async function order(shop: Shop, placed: PlacedOrder): Promise<OrderAnswered> {
  for (let failed = 0; ; failed++) {
    const answered = await call(shop, 'POST', '/orders', { ...placed, quantity: 1 });
    const settled = answered.status < 500 && answered.status !== 423;
    if (settled || failed === MOST_REPEATS) return { ...answered, failed };
    await sleep(PAUSE);
  }
}

/** Rejects when the connection breaks, or without an answer in 30 s. */
export async function call({ url }: Shop, method: string, path: string, body?: object): Promise<Answered> {
  const response = await fetch(`${url}${path}`, {
    method,
    ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(TIME_LIMIT),
  });
  return { status: response.status, headers: response.headers, body: await response.text() };
}

/** The same, for answers that must not be errors. */
export async function mustCall(shop: Shop, method: string, path: string, body?: object): Promise<string> {
  const answered = await call(shop, method, path, body);
  if (answered.status < 300) return answered.body;
  throw new Error(`The shop answered ${method} ${path} with ${answered.status}: ${answered.body}`);
}
