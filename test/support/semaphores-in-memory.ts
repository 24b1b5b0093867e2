import type { LockBackend } from '../../lib/contracts/lock-backend.js';
import type { PrimitiveStoreProvider, SemaphoreStore } from '../../lib/contracts/primitive-stores.js';
import { memory } from '../../lib/backends/memory/memory-lock-backend.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { SemaphoreService } from '../../lib/primitives/semaphore/semaphore.service.js';
import { startLockServices } from './lock-services.js';
import type { RecordingLogger } from './recording-logger.js';

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
