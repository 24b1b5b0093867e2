import type { RedisServer } from '../../support/servers/redis-server.js';
import type { Consumer } from './consumer.js';

/** One dependency of the application imports the package and another requires it: they must get the same classes. */
export async function expectOneClass(consumer: Consumer, server: RedisServer): Promise<void> {
  const said = await consumer.node(['one-class/main.mjs'], { REDIS_URL: server.url });
  expect(JSON.parse(said)).toEqual({ oneClass: true, held: true });
}
