// A listener of a channel throws while a lock is taken. Says the result of the locked function, and
// what Node.js reports.
import { subscribe } from 'node:diagnostics_channel';
import { say, startLockApp } from './lock-app.mjs';

process.on('uncaughtException', ({ message }) => say(`uncaught: ${message}`));
subscribe('nest-redis-lock:lock:acquired', () => {
  throw new Error('a defect');
});
const { locks, app } = await startLockApp();
say(await locks.withLock('observed', async () => 'result'));
await app.close();
