import { Redis } from 'ioredis';
import { Child } from '../../support/child.js';
import { server, startRedis } from '../../support/one-redis.js';

startRedis();

describe('ThrottlerGuard of @nestjs/throttler, in a process on Express and one on Fastify', () => {
  let children: Child[] = [];
  let urls: string[];

  beforeAll(async () => {
    children = ['express', 'fastify'].map((adapter) =>
      Child.start('throttled-server.mjs', [String(server.port), adapter]),
    );
    urls = await Promise.all(children.map((child) => child.says<string>('url')));
  });
  beforeEach(async () => {
    const admin = new Redis(server.url);
    await admin.flushall();
    admin.disconnect();
  });
  afterAll(() => Promise.all(children.map((child) => child.kill())));

  const get = (process: 0 | 1, path: string) => fetch(`${urls[process]}/${path}`);

  it('counts the requests to all processes together, and blocks those beyond the limit', async () => {
    const first = await get(0, 'orders');
    expect(first.status).toBe(200);
    expect(first.headers.get('x-ratelimit-limit')).toBe('3');
    expect(first.headers.get('x-ratelimit-remaining')).toBe('2');
    expect(first.headers.get('x-ratelimit-reset')).toBe('60');
    expect((await get(1, 'orders')).headers.get('x-ratelimit-remaining')).toBe('1');
    expect((await get(0, 'orders')).headers.get('x-ratelimit-remaining')).toBe('0');
    for (const process of [1, 0] as const) {
      const refused = await get(process, 'orders');
      expect(refused.status).toBe(429);
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(180);
      expect(Number(refused.headers.get('retry-after'))).toBeLessThanOrEqual(300);
    }
    expect((await get(1, 'orders/unlimited')).status).toBe(200);
  });

  it('counts each route on its own, by the limit that its decorator gives', async () => {
    expect((await get(0, 'orders/unblocked')).status).toBe(200);
    const refused = await get(1, 'orders/unblocked');
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeLessThanOrEqual(60);
    expect((await get(1, 'orders')).status).toBe(200);
  });
});
