import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { eventually } from '../support/eventually.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { QueueCrew } from '../support/queue-crew.js';
import { quietTimeSince } from '../support/quiet-time.js';

/** Waiters that stand still: how long those behind them wait for it, whatever their ttl. */

/** A waiter that was not heard of for so long (ms) is passed over. */
const SILENCE = 1_500;
/** What each may cost that was heard of since: its claim (ms). */
const CLAIM = 1_000;
/** What a noisy machine may add (ms). */
const SLACK = 400;

let server: RedisServer;
let plain: Redis;
let crew: QueueCrew;
let holder: LockApp;
let other: LockApp;

beforeAll(async () => {
  server = await startRedisServer();
  plain = new Redis(server.url);
  crew = new QueueCrew(server.port);
  [holder, other] = await Promise.all([startLockApp({ redis: server.url }), startLockApp({ redis: server.url })]);
});
afterAll(async () => {
  await crew.dismiss();
  await holder.close();
  await other.close();
  plain.disconnect();
  await server.stop();
});

describe.each([
  [1, 30_000],
  [1, 300],
  [2, 30_000],
  [2, 300],
])('%i of them with a ttl of %i ms', (count, ttl) => {
  const name = `paused:${count}:${ttl}`;
  const ids = Array.from({ length: count }, (_, index) => `${name}:${index}`);

  async function queued(tickets: number): Promise<void> {
    await eventually(async () => (await plain.llen(`lock:{${name}}:queue`)) === tickets, { every: 2 });
  }

  it('delay the next by a claim each at most, and by no more than the silence after which they are passed over', async () => {
    await crew.hire(...ids);
    const lock = await holder.locks.acquire(name, { ttl: 30_000 });
    for (const [index, id] of ids.entries()) {
      await crew.take(id, name, id, { options: { ttl, wait: 20_000 } });
      await queued(index + 1);
    }
    const waiting = other.locks.acquire(name, { wait: 20_000 });
    await queued(count + 1);
    for (const id of ids) crew.member(id).signal('SIGSTOP');
    await lock.release();
    const start = performance.now();
    const next = await waiting;
    const after = quietTimeSince(start);
    await Promise.all(ids.map((id) => crew.member(id).kill()));
    await next.release();
    expect(after).toBeLessThan(Math.min(count * Math.min(ttl, CLAIM), SILENCE + CLAIM) + SLACK);
    expect(await crew.grants(name)).toEqual([]);
  });
});
