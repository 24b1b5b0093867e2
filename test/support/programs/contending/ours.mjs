import { LockLostError } from 'nest-redis-lock';
import { startLockApp } from '../lock-app.mjs';

/** Contends with locks of this library, half of them by `withLock` and half of them by `acquire`. */
export async function connectOurs() {
  const { app, locks } = await startLockApp({}, { shutdownHooks: false });
  return {
    async run(name, { ttl, wait, scoped }, body) {
      if (scoped) return locks.withLock(name, { ttl, wait }, body);
      const lock = await locks.acquire(name, { ttl, wait });
      try {
        return await body(lock);
      } finally {
        await lock.release();
      }
    },
    tellsOfLoss: (error) => error instanceof LockLostError,
    left: (names) => Promise.all(names.map((name) => locks.inspect(name))),
    close: () => app.close(),
  };
}
