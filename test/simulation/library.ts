// The library as it was compiled, from any folder: this one's, a mutated copy, or an earlier version.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Logger } from '@nestjs/common';
import type * as Backends from '../../lib/lock/line/lock-backends.js';
import type * as Locks from '../../lib/lock/lock.service.js';
import type * as Options from '../../lib/redis-lock.options.js';
import { nameScript } from './network.js';
import type { Server } from './server.js';
import type { SimulatedProcess } from './simulated-process.js';
import { type StoreName, STORES } from './stores/index.js';

/** What `lib` was compiled to together with this file. */
export const COMPILED_LIBRARY = new URL('../../lib/', import.meta.url).pathname;

export interface Library {
  start(process: SimulatedProcess, server: Server): Services;
}

/** The services of one application, as the module makes them. */
export interface Services {
  readonly locks: Locks.LockService;
}

export async function loadLibrary(folder = COMPILED_LIBRARY, store: StoreName = 'redis'): Promise<Library> {
  const load = <T>(file: string) => import(pathToFileURL(join(folder, file)).href) as Promise<T>;
  const { resolveModuleOptions } = await load<typeof Options>('redis-lock.options.js');
  const { LockBackends } = await load<typeof Backends>('lock/line/lock-backends.js');
  const { LockService } = await load<typeof Locks>('lock/lock.service.js');
  const backendOf = await STORES[store](load);
  Logger.overrideLogger(false);
  await nameScripts(folder);
  return {
    start(process, server) {
      const { commandTimeout } = process.swarm;
      const { backend, ...options } = resolveModuleOptions({
        backend: backendOf(process, server),
        commandTimeout,
        shutdownGrace: 0,
        label: process.name,
      });
      const backends = new LockBackends({ ...options, main: backend as NonNullable<typeof backend> });
      const locks = new LockService(backends);
      void locks.onModuleInit();
      return { locks };
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
