import { channel } from 'node:diagnostics_channel';
import { jest } from '@jest/globals';
import { memory } from 'nest-redis-lock';
import { RecordedEvents } from '../../support/recorded-events.js';
import { eventually } from '../../support/eventually.js';
import { startLockServices } from '../../support/lock-services.js';
import { scriptedCache } from '../../support/scripted-cache.js';

/** Locks that are contended, handed over, renewed, lost and timed out; reads that hit, miss, load and fail. */
async function work(): Promise<void> {
  await using service = await startLockServices({ backend: memory() });
  const { locks } = service;
  await Promise.all([1, 2, 3].map(() => locks.withLock('a', () => locks.withLock('a', async () => {}))));
  await locks.withLock(['a', 'b'], () => locks.tryAcquire('b', { reentrant: false }).catch(() => {}));
  const lost = await locks.acquire('c', { ttl: '2s', renew: { interval: 10 } });
  await eventually(async () => lost.remaining() > 0);
  await locks.forceRelease('c');
  await lost.release().catch(() => {});
  using scripted = scriptedCache({ l1: {} });
  const { cache } = scripted;
  for (let time = 0; time < 3; time++) await cache.getOrSet('k', () => 1, { tags: ['t'] });
  await cache.getOrSet('failing', () => Promise.reject(new Error('away'))).catch(() => {});
  await cache.get('k');
  await cache.invalidate('k');
  await cache.deleteByTag('t');
  await cache.deleteByPrefix('k');
}

it('without a listener no event is made, nor published', async () => {
  const published = jest.spyOn(Object.getPrototypeOf(channel('any')) as { publish(): void }, 'publish');
  await work();
  expect(published).not.toHaveBeenCalled();
  published.mockRestore();
});

it('without a listener no clock is read for events', async () => {
  const once = async () => {
    await using service = await startLockServices({ backend: memory() });
    await service.locks.withLock('warm', async () => {});
    const clock = jest.spyOn(performance, 'now');
    await service.locks.withLock('a', async () => {});
    const reads = clock.mock.calls.length;
    clock.mockRestore();
    return reads;
  };
  const unobserved = await once();
  using events = new RecordedEvents();
  expect(await once()).toBeGreaterThan(unobserved);
  expect(events.names.length).toBeGreaterThan(0);
});

it('with listeners the same work makes these events', async () => {
  using events = new RecordedEvents();
  await work();
  const made = new Set(events.names);
  const expected = ['attempt', 'contended', 'acquired', 'handedOver', 'lost', 'released', 'releasedLate'];
  expect([...made]).toEqual(expect.arrayContaining([...expected, 'hit', 'miss', 'loadStarted', 'load', 'invalidate']));
});
