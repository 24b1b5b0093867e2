import { LockLostError } from 'nest-redis-lock';
import { startLockApp } from '../lock-app.mjs';
import { optionsFor } from './stores.mjs';

/** Contends with locks of this library, half of them by `withLock` and half of them by `acquire`. */
export async function connectOurs({ backend, ports }) {
  const { app, locks } = await startLockApp(await optionsFor(backend, ports), { shutdownHooks: false });
  return {
    async run(name, { ttl, wait, scoped, mode }, body) {
      if (scoped) return locks.withLock(name, { ttl, wait, mode }, body);
      const lock = await locks.acquire(name, { ttl, wait, mode });
      try {
        return await body(lock);
      } finally {
        await lock.release();
      }
    },
    /** Takes the name to write, and reads on in `after` without giving it away in between. */
    async downgrade(name, { ttl, wait }, body, after) {
      let read;
      try {
        await locks.withLock(name, { ttl, wait }, async (lock) => {
          await body(lock);
          read = await locks.acquire(name, { ttl, wait, mode: 'read' });
        });
        await after(read);
      } finally {
        await read?.release();
      }
    },
    tellsOfLoss: (error) => error instanceof LockLostError,
    left: (names) => Promise.all(names.map((name) => locks.inspect(name))),
    close: () => app.close(),
  };
}
