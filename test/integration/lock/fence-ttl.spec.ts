import { Redis } from 'ioredis';
import { LockConfigError, memory, redis, type RedisLockModuleOptions } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { resolveModuleOptions } from '../../../lib/redis-lock.options.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp } from '../../support/lock-app.js';

let server: RedisServer;
let plain: Redis;

beforeAll(async () => {
  server = await startRedisServer();
  plain = new Redis(server.url);
});
afterAll(async () => {
  plain.disconnect();
  await server.stop();
});

const fence = (name: string) => plain.pttl(`lock:{${name}}:fence`);

it.each<[string, () => RedisLockModuleOptions, number]>([
  ['by default', () => ({ redis: server.url }), 600_000],
  ['as the module says', () => ({ redis: server.url, fenceTtl: '90s' }), 90_000],
  ['as an option of the backend', () => ({ backend: redis(server.url, { fenceTtl: 5_000 }) }), 5_000],
])('the counter of tokens stays %s, by every way to a grant', async (how, options, ttl) => {
  await using app = await startLockApp(options());
  await using other = await startLockApp(options());
  const [free, several, handed] = [`free ${how}`, `several ${how}`, `handed ${how}`];
  await (await app.locks.acquire(free)).release();
  await (await app.locks.acquire([several, `${several} 2`])).release();
  const holder = await app.locks.acquire(handed);
  const waiting = other.locks.acquire(handed);
  await eventually(async () => (await plain.llen(`lock:{${handed}}:queue`)) === 1);
  await plain.persist(`lock:{${handed}}:fence`);
  await holder.release();
  await (await waiting).release();
  for (const name of [free, several, handed]) {
    expect(await fence(name)).toBeGreaterThan(ttl - 5_000);
    expect(await fence(name)).toBeLessThanOrEqual(ttl);
  }
});

it('tokens rise also after it is gone', async () => {
  await using app = await startLockApp({ redis: server.url, fenceTtl: '1s' });
  const tokens: number[] = [];
  for (let i = 0; i < 2; i++) {
    await app.locks.withLock('rising', async ({ fencingToken }) => tokens.push(fencingToken));
    await eventually(async () => (await plain.exists('lock:{rising}:fence')) === 0);
  }
  expect(tokens[1]).toBeGreaterThan(tokens[0] as number);
});

it.each([10, '10ms', 0, -1, NaN, '1 hour'])('refuses %j', (fenceTtl) => {
  const options = { redis: 'redis://127.0.0.1', fenceTtl } as RedisLockModuleOptions;
  expect(() => resolveModuleOptions(options)).toThrow(LockConfigError);
  expect(() => resolveModuleOptions(options)).toThrow(/fenceTtl/);
});

it('belongs to the backend if one is given', () => {
  expect(() => resolveModuleOptions({ backend: memory(), fenceTtl: '1m' })).toThrow(
    /redis\(connection, \{ fenceTtl \}\)/,
  );
});
