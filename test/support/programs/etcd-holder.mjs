// Holds the lock `name` on etcd, and writes a row with its fencing token once it goes on after it was stopped.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { etcd } from 'nest-redis-lock/etcd';
import { say, startLockApp } from './lock-app.mjs';

const [, , endpoints, database, name, ttl] = process.argv;
const { locks } = await startLockApp({
  redis: undefined,
  backend: etcd({ endpoints, ttl: Number(ttl) }),
  cache: false,
});
const client = new pg.Client(database);
await client.connect();
const lock = await locks.acquire(name);
// Before it says so: it may be stopped at once.
let last = performance.now();
say('held', { fencingToken: lock.fencingToken });
for (;;) {
  await sleep(5);
  const pause = performance.now() - last;
  last = performance.now();
  if (pause < Number(ttl) / 2) continue;
  const { held, fencingToken } = lock;
  const write = 'UPDATE fenced SET token = $1, writer = $2 WHERE token < $1';
  const { rowCount } = await client.query(write, [fencingToken, 'the one that was stopped']);
  say('woken', { held, aborted: lock.signal.aborted, rows: rowCount });
}
