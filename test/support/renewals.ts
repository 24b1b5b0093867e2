import type { Lock } from 'nest-redis-lock';
import { eventually } from './eventually.js';

/** The lease outlasts the standstills of a busy machine, and the interval (ms) makes it be renewed often. */
export const RENEWED_OFTEN = { ttl: 10_000, renew: { interval: 50 } } as const;

/** Waits until the lease of each lock that is `RENEWED_OFTEN` was renewed by a request that was sent from now on. */
export async function renewedAgain(...locks: readonly Lock[]): Promise<void> {
  await Promise.all(
    locks.map(async (lock) => {
      const trustedUntil = () => performance.now() + lock.remaining();
      // The first renewal may have been under way.
      for (let times = 0; times < 2; times++) {
        const before = trustedUntil();
        await eventually(() => trustedUntil() > before + RENEWED_OFTEN.renew.interval / 2);
      }
    }),
  );
}
