import { connectIoredis } from '../clients.mjs';

/** Its decorators, on the methods of a class. */
export async function connect(settings) {
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
