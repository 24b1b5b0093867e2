// Takes units of random keys as fast as it can until SIGTERM, and notes each that it got: when it asked and when it was
// answered (µs of the monotonic clock, which all processes of a machine share), in a list on another Redis.
// Its arguments: the port of the limits; `{ evidence, keys, options }`.
import { Redis } from 'ioredis';
import { RateLimiter } from 'nest-redis-lock';
import { say, startLockApp } from './lock-app.mjs';

const { evidence, keys, options } = JSON.parse(process.argv[3]);
const { app } = await startLockApp({ commandTimeout: 2_000 }, { shutdownHooks: false });
const limiter = app.get(RateLimiter);
const notes = new Redis({ host: '127.0.0.1', port: evidence });
const now = () => Number(process.hrtime.bigint() / 1_000n);
const ending = new AbortController();
process.on('SIGTERM', () => ending.abort());
const parent = process.ppid;
const watch = setInterval(() => process.ppid !== parent && process.exit(3), 1_000);
const counts = { allowed: 0, denied: 0, failed: 0 };
say('ready');

async function caller() {
  while (!ending.signal.aborted) {
    const key = Math.floor(Math.random() * keys);
    const asked = now();
    try {
      const { allowed } = await limiter.take(`key:${key}`, options);
      const answered = now();
      if (allowed) await notes.rpush(`key:${key}`, `${asked} ${answered}`);
      counts[allowed ? 'allowed' : 'denied'] += 1;
    } catch {
      counts.failed += 1;
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

await Promise.all(Array.from({ length: 8 }, caller));
say('counts', counts);
clearInterval(watch);
notes.disconnect();
await app.close();
