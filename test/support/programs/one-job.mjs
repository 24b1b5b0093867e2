// Takes and gives back some locks, closes the application and has nothing left to do: the process must end by itself.
import { say, startLockApp } from './lock-app.mjs';

const { locks, app } = await startLockApp();
await locks.withLock('one-job', { wait: 60_000 }, async (lock) => lock.signal.aborted);
const lock = await locks.acquire('one-job', { ttl: 60_000 });
await locks.tryAcquire('one-job', { wait: 50 });
await lock.release();
await app.close();
say('done');
// It keeps nothing alive, and runs if something else does.
setTimeout(() => say('alive'), 3_000).unref();
