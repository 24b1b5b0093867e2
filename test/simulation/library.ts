// The library as it was compiled, from any folder: this one's, a mutated copy, or an earlier version.

import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type * as Nest from '@nestjs/common';
import type * as Engine from '../../lib/cache/cache-engine.js';
import type * as CacheRuntimes from '../../lib/cache/cache-runtime.js';
import type * as Caches from '../../lib/cache/cache.service.js';
import type * as FirstLevels from '../../lib/cache/values/first-level.js';
import type * as Backends from '../../lib/lock/line/lock-backends.js';
import type * as Locks from '../../lib/lock/lock.service.js';
import type * as Idempotency from '../../lib/primitives/idempotency/idempotency.service.js';
import type * as Leaders from '../../lib/primitives/leader/leader-election.js';
import type * as Runtimes from '../../lib/primitives/runtime.js';
import type * as Jobs from '../../lib/primitives/schedule/scheduled-jobs.js';
import type * as Semaphores from '../../lib/primitives/semaphore/semaphore.service.js';
import type * as Module from '../../lib/redis-lock.module.js';
import type * as Options from '../../lib/redis-lock.options.js';
import { nameScript } from './network.js';
import type { Extent } from './schedule.js';
import type { Server } from './server.js';
import type { SimulatedProcess } from './simulated-process.js';
import { type StoreName, STORES } from './stores/index.js';
import type { Swarm } from './swarm.js';

/** What `lib` was compiled to together with this file. */
export const COMPILED_LIBRARY = new URL('../../lib/', import.meta.url).pathname;

export interface Library {
  /** What a schedule on its store never has, of what was drawn. */
  swarm(drawn: Swarm): Partial<Swarm>;
  readonly extent?: Extent | undefined;
  start(process: SimulatedProcess, server: Server): Services;
}

/** The services of one application, as the module makes them. */
export interface Services {
  readonly locks: Locks.LockService;
  readonly semaphores: Semaphores.SemaphoreService;
  readonly leaders: Leaders.LeaderElection;
  readonly idempotency: Idempotency.IdempotencyService;
  readonly jobs: Jobs.ScheduledJobs;
  /** How often a warning said that the record of a job may lack a run. */
  unrecordedRuns(): number;
  readonly cache: Promise<Caches.CacheService>;
}

export async function loadLibrary(folder = COMPILED_LIBRARY, name: StoreName = 'redis'): Promise<Library> {
  const load = <T>(file: string) => import(pathToFileURL(join(folder, file)).href) as Promise<T>;
  const { resolveModuleOptions } = await load<typeof Options>('redis-lock.options.js');
  const { LockBackends } = await load<typeof Backends>('lock/line/lock-backends.js');
  const { LockService } = await load<typeof Locks>('lock/lock.service.js');
  const { backendOf, swarm, extent } = await STORES[name](load);
  const { PrimitiveRuntime } = await load<typeof Runtimes>('primitives/runtime.js');
  const { SemaphoreService } = await load<typeof Semaphores>('primitives/semaphore/semaphore.service.js');
  const { LeaderElection } = await load<typeof Leaders>('primitives/leader/leader-election.js');
  const { IdempotencyService } = await load<typeof Idempotency>('primitives/idempotency/idempotency.service.js');
  const { ScheduledJobs } = await load<typeof Jobs>('primitives/schedule/scheduled-jobs.js');
  const { openCacheStore } = await load<typeof Module>('redis-lock.module.js');
  const { CacheEngine } = await load<typeof Engine>('cache/cache-engine.js');
  const { CacheRuntime } = await load<typeof CacheRuntimes>('cache/cache-runtime.js');
  const { FirstLevel } = await load<typeof FirstLevels>('cache/values/first-level.js');
  const { CacheService } = await load<typeof Caches>('cache/cache.service.js');
  // Another version has a Nest of its own.
  const nest = createRequire(join(folder, 'index.js')).resolve('@nestjs/common');
  const { Logger } = (await import(pathToFileURL(nest).href)) as typeof Nest;
  Logger.overrideLogger(false);
  await nameScripts(folder);
  return {
    swarm,
    extent,
    start(process, server) {
      const { commandTimeout, kinds, closesInside, firstLevel, loadLease } = process.swarm;
      const { backend, cache, ...options } = resolveModuleOptions({
        backend: backendOf(process, server),
        commandTimeout,
        shutdownGrace: closesInside > 0 ? 20_000 : 0,
        cache: { defaults: { lock: { lease: loadLease } }, ...(firstLevel && { l1: { ttl: '5m' } }) },
        label: process.name,
      });
      const backends = new LockBackends({ ...options, main: backend as NonNullable<typeof backend> });
      const locks = new LockService(backends);
      const runtime = new PrimitiveRuntime(backends);
      const cacheService = async () => {
        const cacheStore = cache && (await openCacheStore(cache, undefined, backends.main.calls.backend));
        const engine = cacheStore && new CacheEngine(cacheStore, cache, backends.logger, FirstLevel);
        const cacheRuntime = new CacheRuntime(engine, backends.logger, {});
        backends.whenStopping(() => cacheRuntime.stop());
        const service = new CacheService(cacheRuntime);
        service.onModuleInit();
        return service;
      };
      void locks.onModuleInit();
      let unrecorded = 0;
      const { logger } = backends;
      const warn = logger.warn.bind(logger);
      logger.warn = (line) => {
        if (line.includes('lastRun() may not show')) unrecorded += 1;
        warn(line);
      };
      return {
        locks,
        semaphores: new SemaphoreService(runtime),
        leaders: new LeaderElection(locks, backends),
        idempotency: new IdempotencyService(runtime, locks),
        jobs: new ScheduledJobs(locks, runtime),
        unrecordedRuns: () => unrecorded,
        cache: kinds.includes('cache') || kinds.includes('misses') ? cacheService() : new Promise(() => {}),
      };
    },
  };
}

/** Every script of the backend by the name of its constant. */
async function nameScripts(folder: string): Promise<void> {
  const backend = join(folder, 'backends/redis');
  const files = readdirSync(backend, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.lua.js'));
  for (const file of files) {
    const module = (await import(pathToFileURL(join(backend, file)).href)) as Record<string, unknown>;
    for (const [name, value] of Object.entries(module)) {
      if (typeof value === 'object' && value !== null && 'sha1' in value) nameScript(String(value.sha1), name);
    }
  }
}
