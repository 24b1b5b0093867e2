import { startShop as startShopProcess, type Shop } from '../../sample-app/demo/shop.js';
import { madeProgram } from './child.js';
import { startPostgresServer, type PostgresServer } from './servers/postgres-server.js';
import { startRedisServer, type RedisServer } from './servers/redis-server.js';

const PROGRAM = madeProgram('dist-sample/shop/main.js');

/** What a shop runs on. */
export interface ShopServers {
  readonly redis: RedisServer;
  readonly postgres: PostgresServer;
  stop(): Promise<void>;
}

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

export async function startShopServers(): Promise<ShopServers> {
  const [redis, postgres] = await Promise.all([startRedisServer(), startPostgresServer()]);
  return { redis, postgres, stop: async () => void (await Promise.all([redis.stop(), postgres.stop()])) };
}

export function startShop({ redis, postgres }: ShopServers, env: Record<string, string> = {}): Promise<Shop> {
  return startShopProcess({ REDIS_URL: redis.url, DATABASE_URL: postgres.url, ...env }, PROGRAM);
}

export async function get({ url }: Shop, path: string): Promise<Answer> {
  return answerOf(await fetch(`${url}${path}`));
}

export async function post({ url }: Shop, path: string, body: unknown): Promise<Answer> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return answerOf(
    await fetch(`${url}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: text }),
  );
}

async function answerOf(response: Response): Promise<Answer> {
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}
