import type { Shop } from './shop-process.js';

const TIME_LIMIT = 10_000;

/** Creates the product. */
export async function putOnSale({ url }: Shop, sku: string, stock: number): Promise<void> {
  const response = await fetch(`${url}/products`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ sku, stock }),
    signal: AbortSignal.timeout(TIME_LIMIT),
  });
  if (!response.ok) throw new Error(`The shop refused the product ${sku}: ${await response.text()}`);
}
