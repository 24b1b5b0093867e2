import 'reflect-metadata';
import { jest } from '@jest/globals';
import { memory } from 'nest-redis-lock';
import { cacheChannels } from '../../../lib/events/cache-channels.js';
import { lockChannels } from '../../../lib/events/lock-channels.js';
import { Caller } from '../../../lib/lock/line/caller.js';
import { cacheApp } from '../../support/cache-app.js';
import { startLockApp } from '../../support/lock-app.js';
import { startRedis } from '../../support/one-redis.js';
import { RecordedEvents } from '../../support/recorded-events.js';

startRedis();

const CHANNELS = Object.values({ ...lockChannels, ...cacheChannels });

/** Counts the payloads that are made, also those that nobody would get. */
function payloads() {
  const publish = CHANNELS.map((channel) => jest.spyOn(channel, 'publish'));
  const call = jest.spyOn(Caller.prototype, 'call', 'get');
  const count = () => [...publish, call].reduce((sum, { mock }) => sum + mock.calls.length, 0);
  return { count, [Symbol.dispose]: () => [...publish, call].forEach((spy) => spy.mockRestore()) };
}

async function useLocks() {
  await using app = await startLockApp({ backend: memory() });
  const lock = await app.locks.acquire('a', { ttl: '3s', renew: { interval: 20 } });
  const next = app.locks.acquire('a');
  await app.locks.tryAcquire('a');
  await lock.extend();
  await lock.release();
  await (await next).release();
  await app.locks.withLock('a', () => app.locks.withLock('a', async () => {}));
  const lost = await app.locks.acquire('a');
  await app.locks.forceRelease('a');
  await lost.release().catch(() => {});
}

async function useCache() {
  await using app = await cacheApp({}, { module: { cache: { l1: {} } } });
  await app.cache.getOrSet('k', () => 'value');
  await app.cache.getOrSet('k', () => 'value');
  await app.cache.get('k');
  await app.cache.get('none');
  await app.cache.invalidate('k');
  await app.cache.deleteByTag('t');
  await app.cache.getOrSet('k', () => Promise.reject(new Error('failed'))).catch(() => {});
}

it.each([
  ['locks', useLocks],
  ['a cache', useCache],
])('nobody listening, %s make no payload', async (_what, use) => {
  using made = payloads();
  await use();
  expect(made.count()).toBe(0);
  using _ = new RecordedEvents();
  await use();
  expect(made.count()).toBeGreaterThan(5);
});
