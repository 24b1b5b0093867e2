// Holds `name` inside withLock until the lock's signal is aborted, and tells why.
import { say, startLockApp } from './lock-app.mjs';

const { locks } = await startLockApp({ shutdownGrace: Number(process.argv[4]) });
try {
  await locks.withLock(process.argv[3], async ({ signal }) => {
    say('held');
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
  });
} catch (error) {
  say('ended', { error: error.name, reason: error.reason });
}
