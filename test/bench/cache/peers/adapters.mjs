import { connectIoredis, FIRST_LEVEL_SIZE, quiet } from './connecting.mjs';

/**
 * The floor: what a careful colleague writes by hand, with neither single flight nor anything else, over commands that
 * get and set strings.
 */
function readThrough({ get, set, del }) {
  return {
    async getOrSet(key, loader, { ttl }) {
      const hit = await get(key);
      if (hit !== null) return JSON.parse(hit);
      const value = await loader();
      await set(key, JSON.stringify(value), ttl);
      return value;
    },
    invalidate: del,
  };
}

export async function raw({ options, ...settings }) {
  const client = await connectIoredis(options.module, settings, options.client);
  return readThrough({
    get: (key) => client.get(key),
    set: (key, value, ttl) => client.set(key, value, 'PX', ttl),
    del: (key) => client.del(key),
  });
}

/** Over ioredis, with what one turn of the event loop writes leaving in one system call, as `@redis/client` does. */
export async function rawCork(settings) {
  const client = await connectIoredis('ioredis6', settings);
  let corked = false;
  const corking = (command) => {
    if (!corked) {
      corked = true;
      const { stream } = client;
      stream.cork();
      process.nextTick(() => {
        corked = false;
        stream.uncork();
      });
    }
    return command();
  };
  return readThrough({
    get: (key) => corking(() => client.get(key)),
    set: (key, value, ttl) => corking(() => client.set(key, value, 'PX', ttl)),
    del: (key) => client.del(key),
  });
}

/** Over ioredis, all reads of one turn of the event loop sent as one MGET. */
export async function rawMget(settings) {
  const client = await connectIoredis('ioredis6', settings);
  let batch;
  const flush = () => {
    const waiting = batch;
    batch = undefined;
    client.mget(waiting.map(({ key }) => key)).then(
      (values) => values.forEach((value, index) => waiting[index].resolve(value)),
      (error) => waiting.forEach(({ reject }) => reject(error)),
    );
  };
  const get = (key) =>
    new Promise((resolve, reject) => {
      if (!batch) {
        batch = [];
        process.nextTick(() => setImmediate(flush));
      }
      batch.push({ key, resolve, reject });
    });
  return readThrough({
    get,
    set: (key, value, ttl) => client.set(key, value, 'PX', ttl),
    del: (key) => client.del(key),
  });
}

/** Over the client that the Redis store of cache-manager and cacheable is made of. */
export async function rawNodeRedis({ port, modules }) {
  const { createClient } = modules.require('@redis/client');
  const client = quiet(createClient({ socket: { host: '127.0.0.1', port } }));
  await client.connect();
  return readThrough({
    get: (key) => client.get(key),
    set: (key, value, ttl) => client.set(key, value, { PX: ttl }),
    del: (key) => client.del(key),
  });
}

/** The limit of a first level: a Map with an expiry, by reference or with JSON that is parsed at each hit. */
export function map({ options: { copies } }) {
  const entries = new Map();
  return {
    async getOrSet(key, loader, { ttl }) {
      const entry = entries.get(key);
      if (entry !== undefined && entry.expires > Date.now()) return copies ? JSON.parse(entry.value) : entry.value;
      const value = await loader();
      entries.set(key, { value: copies ? JSON.stringify(value) : value, expires: Date.now() + ttl });
      return value;
    },
    async invalidate(key) {
      entries.delete(key);
    },
  };
}

const TUNED = {
  connection: { commandTimeout: 250, maxRetriesPerRequest: 1 },
  cache: { grace: '1h', l2CircuitBreakerDuration: '5s' },
};

/** With its bus where there is a first level. `tuned` is what its documentation has for a Redis that goes away. */
export async function bentocache({ port, modules, options: { firstLevel, tuned } }) {
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

export function cacheManager({ port, modules, options: { firstLevel } }) {
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

/** With its bus where there is a first level. */
export function cacheable({ port, modules, options }) {
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

/** The `CacheInterceptor` of `@nestjs/cache-manager`, driven without HTTP: its handler is the loader. */
export async function nestInterceptor({ port, modules, options: { firstLevel } }) {
  modules.require('reflect-metadata');
  const { NestFactory } = await modules.import('@nestjs/core');
  const { CacheModule, CacheInterceptor, CacheKey, CacheTTL, CACHE_MANAGER } =
    await modules.import('@nestjs/cache-manager');
  const { defer, lastValueFrom } = await modules.import('rxjs');
  const { Keyv } = modules.require('keyv');
  const { default: KeyvRedis } = modules.require('@keyv/redis');
  const { CacheableMemory } = modules.require('cacheable');
  class Root {}
  const stores = firstLevel ? [new Keyv({ store: new CacheableMemory({ lruSize: FIRST_LEVEL_SIZE }) })] : [];
  stores.push(quiet(new KeyvRedis(`redis://127.0.0.1:${port}`)));
  const root = { module: Root, imports: [CacheModule.register({ stores })], providers: [CacheInterceptor] };
  const app = await NestFactory.createApplicationContext(root, { logger: false });
  const [interceptor, manager] = [app.get(CacheInterceptor), app.get(CACHE_MANAGER)];
  const handler = () => {};
  CacheKey((context) => context.key)(handler, undefined, { value: handler });
  CacheTTL((context) => context.ttl)(handler, undefined, { value: handler });
  const contextOf = (key, ttl) => ({ key, ttl, getHandler: () => handler, getClass: () => Root });
  return {
    getOrSet: async (key, loader, { ttl }) => {
      return lastValueFrom(await interceptor.intercept(contextOf(key, ttl), { handle: () => defer(loader) }));
    },
    invalidate: (key) => manager.del(key),
  };
}

/** Its decorators, on the methods of a class. */
export async function typeCacheable(settings) {
  const { modules } = settings;
  modules.require('reflect-metadata');
  const { Cacheable, CacheClear } = modules.require('@type-cacheable/core');
  const { useAdapter } = modules.require('@type-cacheable/ioredis-adapter');
  useAdapter(await connectIoredis('ioredis', settings));
  class Service {
    find(_key, loader) {
      return loader();
    }
    changed() {}
  }
  const decorate = (name, decorator) => {
    const descriptor = Object.getOwnPropertyDescriptor(Service.prototype, name);
    Object.defineProperty(Service.prototype, name, decorator(Service.prototype, name, descriptor));
  };
  decorate('find', Cacheable({ cacheKey: ([key]) => key, ttlSeconds: ([, , ttl]) => Math.ceil(ttl / 1_000) }));
  decorate('changed', CacheClear({ cacheKey: ([key]) => key }));
  const service = new Service();
  return {
    getOrSet: (key, loader, { ttl }) => service.find(key, loader, ttl),
    invalidate: (key) => service.changed(key),
  };
}

/** Loaded by its own processes alone: those of the others have no more of this library than they need. */
export async function ours(settings) {
  const { connect } = await import('./ours.mjs');
  return connect(settings);
}
