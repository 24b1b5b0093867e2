import { connectorOf } from '../../peers/connecting.mjs';
import * as adapters from './adapters.mjs';

const BENTOCACHE = { adapter: adapters.bentocache, packages: ['bentocache', 'ioredis'] };
const CACHE_MANAGER = {
  adapter: adapters.cacheManager,
  packages: ['cache-manager', 'keyv', '@keyv/redis', '@redis/client'],
};
const CACHEABLE = { adapter: adapters.cacheable, packages: ['cacheable', '@keyv/redis', '@redis/client'] };
const NEST_INTERCEPTOR = {
  adapter: adapters.nestInterceptor,
  packages: ['@nestjs/cache-manager', '@keyv/redis', '@redis/client'],
};
const OURS = { adapter: adapters.ours, packages: [], own: true };
const MAP = { adapter: adapters.map, packages: [] };

/**
 * Who is measured: `-l2` has Redis only, `-l1l2` the memory of the process in front of it, as the documentation of each
 * library sets that up, and `-ref` hands out what is in memory itself where `-l1l2` hands out copies.
 *
 * An `adapter({ port, modules, options })` answers `{ getOrSet(key, loader, { ttl }), invalidate(key) }`,
 * with the ttl in ms.
 */
export const PEERS = {
  raw: { adapter: adapters.raw, packages: ['ioredis6'], options: { module: 'ioredis6' } },
  'raw-autopipe': {
    adapter: adapters.raw,
    packages: ['ioredis6'],
    options: { module: 'ioredis6', client: { enableAutoPipelining: true } },
  },
  'raw-ioredis5': { adapter: adapters.raw, packages: ['ioredis'], options: { module: 'ioredis' } },
  'raw-cork': { adapter: adapters.rawCork, packages: ['ioredis6'] },
  'raw-mget': { adapter: adapters.rawMget, packages: ['ioredis6'] },
  'raw-node-redis': { adapter: adapters.rawNodeRedis, packages: ['@redis/client'] },
  'map-json': { ...MAP, options: { copies: true } },
  'map-ref': { ...MAP, options: { copies: false } },
  'bento-l2': { ...BENTOCACHE, options: {} },
  'bento-l1l2': { ...BENTOCACHE, options: { firstLevel: { copies: true } } },
  'bento-l1l2-ref': { ...BENTOCACHE, options: { firstLevel: { copies: false } } },
  'bento-l1l2-tuned': { ...BENTOCACHE, options: { firstLevel: { copies: true }, tuned: true } },
  'cm-l2': { ...CACHE_MANAGER, options: {} },
  'cm-l1l2': { ...CACHE_MANAGER, options: { firstLevel: { copies: true } } },
  'cm-l1l2-ref': { ...CACHE_MANAGER, options: { firstLevel: { copies: false } } },
  'cacheable-l2': { ...CACHEABLE, options: {} },
  'cacheable-l1l2': { ...CACHEABLE, options: { firstLevel: { copies: true } } },
  'cacheable-l1l2-json': { ...CACHEABLE, options: { firstLevel: { json: true } } },
  'cacheable-l1l2-ref': { ...CACHEABLE, options: { firstLevel: { copies: false } } },
  'cacheable-l1l2-nonblocking': { ...CACHEABLE, options: { firstLevel: { copies: true }, nonBlocking: true } },
  'type-cacheable': {
    adapter: adapters.typeCacheable,
    packages: ['@type-cacheable/core', '@type-cacheable/ioredis-adapter', 'ioredis'],
  },
  'nest-interceptor': { ...NEST_INTERCEPTOR, options: {} },
  'nest-interceptor-l1l2': { ...NEST_INTERCEPTOR, options: { firstLevel: true } },
  'ours-l2': { ...OURS, options: {} },
  'ours-l1l2': { ...OURS, options: { firstLevel: { copies: true } } },
  'ours-l1l2-ref': { ...OURS, options: { firstLevel: { copies: false } } },
};

export const connectPeer = connectorOf(PEERS);

export const SECOND_LEVEL = [
  'raw',
  'raw-autopipe',
  'bento-l2',
  'cm-l2',
  'cacheable-l2',
  'type-cacheable',
  'nest-interceptor',
  'ours-l2',
];

export const BOTH_LEVELS = ['bento-l1l2', 'cm-l1l2', 'cacheable-l1l2', 'ours-l1l2'];
