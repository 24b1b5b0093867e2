import type { Shop } from './shop-process.js';

const TIME_LIMIT = 5_000;

/** What is wrong with the first unhealthy shop. */
export async function illnessOf(shops: readonly Shop[]): Promise<string | undefined> {
  const found = await Promise.all(shops.map(illness));
  return found.find((each) => each !== undefined);
}

async function illness({ url, process }: Shop): Promise<string | undefined> {
  const who = `process ${process.pid} of the shop`;
  try {
    const response = await fetch(`${url}/health`, { signal: AbortSignal.timeout(TIME_LIMIT) });
    if (response.ok) return undefined;
    return `${who} says: ${((await response.json()) as { message: string }).message}`;
  } catch (error) {
    return error instanceof DOMException ? `${who} does not answer` : `${who} is gone`;
  }
}
