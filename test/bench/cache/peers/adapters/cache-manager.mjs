import { quiet } from '../clients.mjs';
import { FIRST_LEVEL_SIZE } from '../first-level-size.mjs';

export function connect({ port, modules, options: { firstLevel } }) {
  const { createCache } = modules.require('cache-manager');
  const { Keyv } = modules.require('keyv');
  const { default: KeyvRedis } = modules.require('@keyv/redis');
  const stores = firstLevel ? [memoryStore(modules, firstLevel.copies)] : [];
  stores.push(quiet(new Keyv({ store: quiet(new KeyvRedis(`redis://127.0.0.1:${port}`)) })));
  const cache = createCache({ stores });
  return {
    getOrSet: (key, loader, { ttl }) => cache.wrap(key, loader, ttl),
    invalidate: (key) => cache.del(key),
  };
}

function memoryStore(modules, copies) {
  const { CacheableMemory, createKeyv } = modules.require('cacheable');
  if (!copies) return createKeyv({ lruSize: FIRST_LEVEL_SIZE, useClone: false });
  const { Keyv } = modules.require('keyv');
  return new Keyv({ store: new CacheableMemory({ lruSize: FIRST_LEVEL_SIZE }) });
}
