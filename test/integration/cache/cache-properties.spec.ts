import fc from 'fast-check';
import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import type { CacheEntryOptions } from '../../../lib/cache/options/cache-options.js';
import { clientWithBusThrough, closeCaches, openCache, type CacheInstance } from '../../support/cache-instance.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { CacheModel, type CacheStep } from '../../support/cache-model.js';

const APPS = 2;
const KEYS = 2;
/** More than usual, with `CACHE_RUNS`. */
const RUNS = Number(process.env['CACHE_RUNS'] ?? 60);
/** What messages take (ms) on their way to the second application. */
const SLOW_BUS = 12;

let server: RedisServer;
let admin: Redis;
let proxy: FaultProxy;
let clients: Redis[];
let instances: CacheInstance[];
let histories = 0;

beforeAll(async () => {
  server = await startRedisServer();
  admin = new Redis(server.url);
  proxy = await FaultProxy.start(server.port);
  clients = [server.port, proxy.port].map((busPort, index) =>
    clientWithBusThrough({ port: server.port, connectionName: `app-${index}`, retryStrategy: () => 5 }, busPort),
  );
  const open = (redis: Redis) => openCache({ redis, cache: { l1: {}, commandTimeout: '2s' } });
  instances = await Promise.all(clients.map(open));
  proxy.slow({ reply: SLOW_BUS });
});
afterAll(async () => {
  await closeCaches(instances);
  for (const client of clients) client.disconnect();
  await proxy.stop();
  admin.disconnect();
  await server.stop();
});

const place = { app: fc.nat(APPS - 1), key: fc.nat(KEYS - 1), pause: fc.nat(3) };
const step = (writes: readonly ('invalidate' | 'mutate' | 'tag' | 'prefix')[]): fc.Arbitrary<CacheStep> =>
  fc.oneof(
    { weight: 8, arbitrary: fc.record({ kind: fc.constant('read' as const), held: fc.boolean(), ...place }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('let' as const), ...place }) },
    {
      weight: 4,
      arbitrary: fc.record({ kind: fc.constant('write' as const), by: fc.constantFrom(...writes), ...place }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('expire' as const), ...place }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('crash' as const, 'cut', 'deafen'), ...place }) },
  );

/** Leases and loads that end soon, so that a history with crashes does. */
const SHORT: CacheEntryOptions = { lock: { lease: 100 }, loaderTimeout: 150 };

async function holds(options: CacheEntryOptions, tagged: boolean): Promise<void> {
  const writes = ['invalidate', 'mutate', 'prefix'] as const;
  const steps = fc.array(step(tagged ? [...writes, 'tag', 'tag'] : writes), {
    minLength: 4,
    maxLength: 40,
    size: 'max',
  });
  const history = fc.asyncProperty(steps, async (all) => {
    histories += 1;
    const keys = Array.from({ length: KEYS }, (_, key) => `history:${histories}:${key}`);
    const model = new CacheModel(instances, admin, keys, { ...SHORT, ...options }, tagged);
    await model.run(all);
    expect(model.findings).toEqual([]);
  });
  await fc.assert(history, { numRuns: RUNS, endOnFailure: true });
}

it('a strong read is never older than the last invalidation that had ended when it began', () =>
  holds({ consistency: 'strong' }, false));

it('an eventual read is older than that by a moment at most', () => holds({}, false));

it('neither is a read of tagged values', () => holds({}, true));

it('neither is a read that may be answered with a stale value', () =>
  holds({ ttl: 15, staleTtl: '1m', refreshAhead: 0.5 }, false));
