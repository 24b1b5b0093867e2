import { quiet } from '../clients.mjs';
import { FIRST_LEVEL_SIZE } from '../first-level-size.mjs';

/** With its bus where there is a first level. */
export function connect({ port, modules, options }) {
  const { Cacheable } = modules.require('cacheable');
  const url = `redis://127.0.0.1:${port}`;
  const cache = quiet(
    new Cacheable(options.firstLevel ? bothLevels(modules, url, options) : secondLevel(modules, url)),
  );
  return {
    // Otherwise it swallows the errors of the loader.
    getOrSet: (key, loader, { ttl }) => cache.getOrSet(key, loader, { ttl, throwErrors: 'function' }),
    invalidate: (key) => cache.delete(key),
  };
}

function secondLevel(modules, url) {
  const { Keyv } = modules.require('keyv');
  const { default: KeyvRedis } = modules.require('@keyv/redis');
  return { primary: new Keyv({ store: new KeyvRedis(url) }) };
}

function bothLevels(modules, url, { firstLevel: { copies, json }, nonBlocking = false }) {
  const { CacheableMemory, createKeyv: inMemory } = modules.require('cacheable');
  const { Keyv } = modules.require('keyv');
  const { createKeyv, createKeyvNonBlocking } = modules.require('@keyv/redis');
  const { RedisMessageProvider } = modules.require('@qified/redis');
  const bus = new RedisMessageProvider({ uri: url });
  // Without a listener, which its documentation does not show, a cut connection ends the process.
  quiet(bus.pub);
  quiet(bus.sub);
  const primary = json
    ? new Keyv({ store: new CacheableMemory({ lruSize: FIRST_LEVEL_SIZE }) })
    : inMemory({ lruSize: FIRST_LEVEL_SIZE, useClone: copies });
  const secondary = nonBlocking ? createKeyvNonBlocking(url) : createKeyv(url);
  return { primary, secondary, nonBlocking, sync: { qified: bus } };
}
