// Holds the lock `name` with a lease of `ttl` ms, and tells of every tick whether it believes to hold it.
// After the process was stopped, it tells what it reads first.
import { say, startLockApp } from './lock-app.mjs';

const [, , , name, ttl] = process.argv;
const { locks, app } = await startLockApp();
let last = performance.now();
try {
  await locks.withLock(name, { ttl: Number(ttl) }, async (lock) => {
    say('held', { owner: lock.owner, fencingToken: lock.fencingToken });
    await new Promise((resolve) => {
      const timer = setInterval(() => {
        const pause = performance.now() - last;
        last = performance.now();
        if (pause < Number(ttl) / 2) return;
        clearInterval(timer);
        let thrown = null;
        try {
          lock.assertHeld();
        } catch (error) {
          thrown = error.name;
        }
        say('woken', { held: lock.held, remaining: lock.remaining(), aborted: lock.signal.aborted, thrown });
        resolve();
      }, 5);
    });
  });
  say('ended', { error: null });
} catch (error) {
  say('ended', { error: error.name, reason: error.reason });
}
await app.close();
