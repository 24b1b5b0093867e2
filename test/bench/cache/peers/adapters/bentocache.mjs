import { FIRST_LEVEL_SIZE } from '../first-level-size.mjs';

const TUNED = {
  connection: { commandTimeout: 250, maxRetriesPerRequest: 1 },
  cache: { grace: '1h', l2CircuitBreakerDuration: '5s' },
};

/** With its bus where there is a first level. `tuned` is what its documentation has for a Redis that goes away. */
export async function connect({ port, modules, options: { firstLevel, tuned } }) {
  const { BentoCache, bentostore } = await modules.import('bentocache');
  const { redisDriver, redisBusDriver } = await modules.import('bentocache/drivers/redis');
  const { memoryDriver } = await modules.import('bentocache/drivers/memory');
  const connection = { host: '127.0.0.1', port };
  let store = bentostore();
  if (firstLevel) store = store.useL1Layer(memoryDriver({ maxItems: FIRST_LEVEL_SIZE, serialize: firstLevel.copies }));
  store = store.useL2Layer(redisDriver({ connection: { ...connection, ...(tuned && TUNED.connection) } }));
  if (firstLevel) store = store.useBus(redisBusDriver({ connection }));
  const cache = new BentoCache({ default: 'main', stores: { main: store }, ...(tuned && TUNED.cache) });
  return {
    getOrSet: (key, factory, { ttl }) => cache.getOrSet({ key, factory, ttl }),
    invalidate: (key) => cache.delete({ key }),
  };
}
