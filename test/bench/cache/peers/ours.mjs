import { CacheService } from 'nest-redis-lock';
import { connectApplication } from '../../worker/lock-service.mjs';
import { FIRST_LEVEL_SIZE } from './connecting.mjs';

export async function connect({ port, options: { firstLevel } }) {
  const l1 = firstLevel && { max: FIRST_LEVEL_SIZE, ttl: '10m', serialize: firstLevel.copies };
  const app = await connectApplication(port, { cache: l1 ? { l1 } : {} });
  const cache = app.get(CacheService);
  return {
    getOrSet: (key, loader, { ttl }) => cache.getOrSet(key, loader, { ttl }),
    invalidate: (key) => cache.invalidate(key),
    set: (key, value, { ttl }) => cache.set(key, value, { ttl }),
    deleteByPrefix: (prefix) => cache.deleteByPrefix(prefix),
  };
}
