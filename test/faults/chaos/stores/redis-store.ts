import { Redis } from 'ioredis';
import { startRedisServer } from '../../../support/servers/redis-server.js';
import { SETTINGS } from '../settings.js';
import { RedisOnlooker } from './redis-onlooker.js';
import type { Store } from './store.js';

export async function startRedisStore(): Promise<Store> {
  const server = await startRedisServer();
  const admin = new Redis({ host: '127.0.0.1', port: server.port });
  const onlooker = new RedisOnlooker([admin]);
  return {
    ports: [server.port],
    request: 'eval',
    lease: SETTINGS.ttl.most,
    faults: {
      flush: () => admin.script('FLUSH'),
      clientKill: () => admin.call('CLIENT', 'KILL', 'TYPE', 'normal'),
      pubsubKill: () => admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub'),
    },
    leftovers: () => onlooker.leftovers(),
    endless: () => onlooker.endless(),
    [Symbol.asyncDispose]: async () => {
      admin.disconnect();
      await server.stop();
    },
  };
}
