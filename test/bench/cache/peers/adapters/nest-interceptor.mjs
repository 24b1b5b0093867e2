import { quiet } from '../clients.mjs';
import { FIRST_LEVEL_SIZE } from '../first-level-size.mjs';

/** The `CacheInterceptor` of `@nestjs/cache-manager`, driven without HTTP: its handler is the loader. */
export async function connect({ port, modules, options: { firstLevel } }) {
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
