import { randomUUID } from 'node:crypto';
import type { Strategy } from '../../sample-app/src/deduction/strategy.js';
import type { Shop } from '../../sample-app/demo/shop.js';
import { get, post, startShop, startShopServers, type ShopServers } from '../support/shop.js';
import { ShopSale } from './shop-sale.js';

const [STOCK, ORDERS, AT_ONCE] = [100, 300, 30];

let servers: ShopServers;
let shops: Shop[] = [];

beforeAll(async () => {
  servers = await startShopServers();
  shops = await Promise.all([1, 2, 3].map(() => startShop(servers)));
}, 240_000);
afterAll(async () => {
  await Promise.all(shops.map((shop) => shop.process.stop()));
  await servers.stop();
});

/** The values of one metric in a scrape of each process of the shop, by the text of their labels, added up. */
async function scrape(name: string): Promise<ReadonlyMap<string, number>> {
  const sums = new Map<string, number>();
  for (const { url } of shops) {
    const response = await fetch(`${url}/metrics`);
    expect(response.headers.get('content-type')).toContain('text/plain; version=0.0.4');
    for (const [, labels = '', value] of (await response.text()).matchAll(
      new RegExp(`^${name}\\{(.*)\\} (\\S+)$`, 'gm'),
    )) {
      sums.set(labels, (sums.get(labels) ?? 0) + Number(value));
    }
  }
  return sums;
}

it.each<Strategy>(['lock', 'fenced'])(
  'counts what the clients of a sale with %s saw, over all processes',
  async (strategy) => {
    const LABELS = 'template="stock:<0>",backend="redis"';
    const count = async (name: string, more = '') =>
      (await scrape(`nest_redis_lock_${name}`)).get(`${LABELS}${more}`) ?? 0;
    const counts = async () => ({
      attempts: await count('attempts_total'),
      acquired: await count('acquired_total', ',reentrant="false"'),
      released: await count('released_total', ',confirmed="true"'),
      waits: await count('wait_seconds_count'),
      timeouts: await count('failed_total', ',reason="timeout"'),
    });
    const sku = `sku-${randomUUID()}`;
    await post(shops[0] as Shop, '/products', { sku, stock: STOCK });
    const before = await counts();
    const { accepted, outOfStock, busy, errors } = await new ShopSale(shops).deduct(strategy, sku, ORDERS, AT_ONCE);
    const after = await counts();
    const of = (name: keyof typeof before) => after[name] - before[name];
    expect({ accepted, errors, answered: accepted + outOfStock + busy }).toEqual({
      accepted: STOCK,
      errors: 0,
      answered: ORDERS,
    });
    expect(of('attempts')).toBe(ORDERS);
    for (const each of ['acquired', 'released', 'waits'] as const)
      expect([each, of(each)]).toEqual([each, accepted + outOfStock]);
    expect(of('timeouts')).toBe(busy);
    expect(await count('held')).toBe(0);
  },
);

it('counts what the cache answered', async () => {
  const sku = `sku-${randomUUID()}`;
  await post(shops[0] as Shop, '/products', { sku, stock: 1 });
  const reads = async () =>
    [...(await scrape('nest_redis_cache_hits_total')).values()].reduce((sum, each) => sum + each, 0);
  await get(shops[0] as Shop, `/products/${sku}`);
  const before = await reads();
  for (let read = 0; read < 10; read++) await get(shops[0] as Shop, `/products/${sku}`);
  expect((await reads()) - before).toBe(10);
});
