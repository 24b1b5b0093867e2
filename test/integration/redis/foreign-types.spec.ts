import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { RENEWED_OFTEN, renewedAgain } from '../../support/renewals.js';

/** Keys of ours into which somebody else wrote something of another type. */

let server: RedisServer;
let plain: Redis;
let app: LockApp;

beforeAll(async () => {
  server = await startRedisServer();
  plain = new Redis(server.url);
  app = await startLockApp({ redis: server.url });
});
afterAll(async () => {
  await app.close();
  plain.disconnect();
  await server.stop();
});

const NAMES = ['a', 'b', 'c', 'd'];

it.each([
  ['queue', (key: string) => plain.set(key, 'foreign')],
  ['waiters', (key: string) => plain.rpush(key, 'foreign')],
  ['fence', (key: string) => plain.del(key).then(() => plain.rpush(key, 'foreign'))],
])('a foreign %s spoils neither a lease that is renewed with others nor a release', async (which, spoil) => {
  await plain.flushall();
  const locks = await Promise.all(NAMES.map((name) => app.locks.acquire(name, RENEWED_OFTEN)));
  await spoil(`lock:{b}:${which}`);
  await renewedAgain(...locks);
  await Promise.all(locks.map((lock) => lock.release()));
  for (const name of NAMES) expect(await plain.exists(`lock:{${name}}`)).toBe(0);
  expect(app.logger.lines).toEqual([]);
});

it.each([
  ['queue', 'b', 'set'],
  ['fence', 'b', 'rpush'],
] as const)('a foreign %s refuses its own name only, and leaves nothing locked', async (which, name, write) => {
  await plain.flushall();
  await plain.call(write, `lock:{${name}}:${which}`, 'foreign');
  const outcomes = await Promise.allSettled(NAMES.map((each) => app.locks.acquire(each, { wait: 0 })));
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
  expect(outcomes[1]).toMatchObject({
    reason: { code: 'LOCK_BACKEND', message: expect.stringContaining('WRONGTYPE') },
  });
  for (const outcome of outcomes) if (outcome.status === 'fulfilled') await outcome.value.release();
  await eventually(async () => (await plain.exists(`lock:{${name}}`)) === 0);
});
