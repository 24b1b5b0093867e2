import { Logger } from '@nestjs/common';
import type { LockBackend, LockService, RedisLockModuleOptions } from 'nest-redis-lock';
import { memory } from 'nest-redis-lock/memory';
import type { PrimitiveStoreProvider, SemaphoreStore } from '../../lib/contracts/primitive-stores.js';
import { LockBackends } from '../../lib/lock/line/lock-backends.js';
import { LockService as Locks } from '../../lib/lock/lock.service.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { SemaphoreService } from '../../lib/primitives/semaphore/semaphore.service.js';
import { resolveModuleOptions } from '../../lib/redis-lock.options.js';
import { RecordingLogger } from './recording-logger.js';

export interface LockServices extends AsyncDisposable {
  readonly locks: LockService;
  readonly backends: LockBackends;
  readonly logger: RecordingLogger;
  close(): Promise<void>;
}

/** What `startLockApp` starts, without a Nest application: unit tests load it in half the time. */
export async function startLockServices(options: RedisLockModuleOptions): Promise<LockServices> {
  const logger = new RecordingLogger();
  Logger.overrideLogger(logger);
  const { backend = memory(), ...resolved } = resolveModuleOptions(options);
  const backends = new LockBackends({ ...resolved, main: backend });
  const locks = new Locks(backends);
  await locks.onModuleInit();
  const close = () => locks.onApplicationShutdown();
  return { locks, backends, logger, close, [Symbol.asyncDispose]: close };
}

interface Semaphores extends AsyncDisposable {
  readonly semaphores: SemaphoreService;
  readonly logger: RecordingLogger;
  close(): Promise<void>;
}

/** Semaphores in memory, with some calls of their store replaced. */
export async function semaphoresWith(
  replace: (inner: SemaphoreStore) => Partial<SemaphoreStore> = () => ({}),
  { commandTimeout = 300 } = {},
): Promise<Semaphores> {
  const backend = memory() as LockBackend & PrimitiveStoreProvider;
  const inner = backend.openPrimitiveStores(undefined);
  backend.openPrimitiveStores = () => ({ ...inner, semaphores: { ...inner.semaphores, ...replace(inner.semaphores) } });
  const services = await startLockServices({ backend, commandTimeout, shutdownGrace: 100 });
  const semaphores = new SemaphoreService(new PrimitiveRuntime(services.backends));
  const { logger, close } = services;
  return { semaphores, logger, close, [Symbol.asyncDispose]: close };
}
