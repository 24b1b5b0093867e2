import { fileURLToPath } from 'node:url';
import { ServerProcess } from '../servers/server-process.js';

/** A process of the shop. The demo speaks to it over HTTP, and by the environment variables that it starts with. */
export interface Shop {
  readonly url: string;
  readonly process: ServerProcess;
}

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

const PROGRAM = fileURLToPath(new URL('../shop/main.js', import.meta.url));
/** Milliseconds. */
const HEALTH_TIME_LIMIT = 5_000;
const CREATION_TIME_LIMIT = 10_000;
const TIME_LIMIT = 30_000;

/** Starts one process of the shop on a free port. */
export async function startShop(env: Record<string, string>, program = PROGRAM): Promise<Shop> {
  const started = await ServerProcess.start({
    command: process.execPath,
    args: [program],
    env: { PORT: '0', ...env },
    ready: async (server) => urlOf(server),
  });
  return { url: urlOf(started), process: started };
}

/** What is wrong with the first unhealthy shop. */
export async function illnessOf(shops: readonly Shop[]): Promise<string | undefined> {
  const found = await Promise.all(shops.map(illness));
  return found.find((each) => each !== undefined);
}

/** Creates the product. */
export async function putOnSale({ url }: Shop, sku: string, stock: number): Promise<void> {
  const response = await fetch(`${url}/products`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ sku, stock }),
    signal: AbortSignal.timeout(CREATION_TIME_LIMIT),
  });
  if (!response.ok) throw new Error(`The shop refused the product ${sku}: ${await response.text()}`);
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

function urlOf({ log }: ServerProcess): string {
  const port = /shop listening on \S+:(\d+)/.exec(log)?.[1];
  if (port === undefined) throw new Error('the shop does not listen yet');
  return `http://127.0.0.1:${port}`;
}

async function illness({ url, process }: Shop): Promise<string | undefined> {
  const who = `process ${process.pid} of the shop`;
  try {
    const response = await fetch(`${url}/health`, { signal: AbortSignal.timeout(HEALTH_TIME_LIMIT) });
    if (response.ok) return undefined;
    return `${who} says: ${((await response.json()) as { message: string }).message}`;
  } catch (error) {
    return error instanceof DOMException ? `${who} does not answer` : `${who} is gone`;
  }
}
