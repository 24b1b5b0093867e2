import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { CacheEvents, Cached } from 'nest-redis-lock';
import { cacheApp } from '../../support/cache-app.js';
import { eventually } from '../../support/eventually.js';
import { away, startRedis } from '../../support/one-redis.js';
import { RecordedEvents } from '../../support/recorded-events.js';
import { scriptedCache } from '../../support/scripted-cache.js';

startRedis();

describe('the events of a cache', () => {
  it('are a miss with its load, and hits by level', async () => {
    await using app = await cacheApp({}, { module: { cache: { l1: {} } } });
    using events = new RecordedEvents();
    await app.cache.getOrSet('k', () => 'value');
    await app.cache.getOrSet('k', () => 'other', { consistency: 'strong' });
    await app.cache.getOrSet('k', () => 'other');
    expect(events.names).toEqual(['miss', 'loadStarted', 'load', 'hit', 'hit']);
    const ofKey = { key: 'k', template: undefined };
    expect(events.of('miss')).toEqual([ofKey]);
    expect(events.of('loadStarted')).toEqual([ofKey]);
    const [started] = events.of('loadStarted');
    expect(events.of('load')).toEqual([{ ...ofKey, load: started, took: expect.any(Number), error: undefined }]);
    expect(events.of('load')[0]?.load).toBe(started);
    expect(events.of('hit')).toEqual([
      { ...ofKey, level: 'second', stale: false },
      { ...ofKey, level: 'first', stale: false },
    ]);
  });

  it('are hits and misses of reads by hand, and invalidations by key, tag and prefix', async () => {
    await using app = await cacheApp();
    using events = new RecordedEvents();
    await app.cache.get('k');
    await app.cache.set('k', 1);
    await app.cache.get('k');
    await app.cache.getDel('k');
    await app.cache.invalidate('k');
    await app.cache.deleteByTag('t');
    await app.cache.deleteByPrefix('p');
    expect(events.names).toEqual(['miss', 'hit', 'invalidate', 'hit', 'invalidate', 'invalidate', 'invalidate']);
    const none = { key: undefined, tag: undefined, matching: undefined };
    expect(events.of('invalidate')).toEqual([
      { ...none, key: 'k' },
      { ...none, key: 'k' },
      { ...none, tag: 't' },
      { ...none, matching: 'p' },
    ]);
  });

  it('carry the template of the decorator', async () => {
    @Injectable()
    class Products {
      @Cached('product:<0>')
      async find(id: number): Promise<number> {
        return id;
      }

      @Cached((id: number) => `price:${id}`, { tags: ['price:<0>'] })
      async price(id: number): Promise<number> {
        return id;
      }
    }
    await using app = await cacheApp({ providers: [Products] });
    using events = new RecordedEvents();
    const products = app.app.get(Products);
    for (let time = 0; time < 2; time++) {
      await products.find(7);
      await products.price(7);
    }
    const templates = ['product:<0>', 'Products.price'];
    for (const name of ['miss', 'load', 'hit'] as const) {
      expect(events.of(name).map(({ template }) => template)).toEqual(templates);
    }
  });

  it('tell stale hits and failed refreshes, and the errors of loaders', async () => {
    await using app = await cacheApp();
    using events = new RecordedEvents();
    const options = { ttl: 20, staleTtl: '1m', jitter: 0 } as const;
    await app.cache.getOrSet('k', () => 'value', options);
    await sleep(40);
    const error = new Error('the database is away');
    const fail = () => Promise.reject(error);
    expect(await app.cache.getOrSet('k', fail, options)).toBe('value');
    await eventually(() => events.of('refreshFailed').length === 1);
    expect(events.of('hit')).toEqual([{ key: 'k', template: undefined, level: 'second', stale: true }]);
    expect(events.of('refreshFailed')).toEqual([{ key: 'k', template: undefined, error }]);
    expect(events.of('load').map((load) => load.error)).toEqual([undefined, error]);
  });

  it('tell that the store refused a value whose key was invalidated meanwhile', async () => {
    await using app = await cacheApp();
    using events = new RecordedEvents(['commitRefused']);
    await app.cache.getOrSet('k', async () => {
      await app.cache.invalidate('k');
      return 'old';
    });
    expect(events.of('commitRefused')).toEqual([{ key: 'k', template: undefined }]);
  });

  it('tell deletions that the store did not confirm, and their confirmation', async () => {
    using scripted = scriptedCache({ breaker: { errors: 1_000_000 } });
    const { cache, store } = scripted;
    using events = new RecordedEvents(['unconfirmed', 'confirmed']);
    const invalidate = store.invalidate.bind(store);
    store.invalidate = away;
    await cache.invalidate('k');
    const what = 'invalidation of "k"';
    expect(events.all).toEqual([{ name: 'unconfirmed', event: { what } }]);
    store.invalidate = invalidate;
    await eventually(() => events.of('confirmed').length === 1);
    expect(events.of('confirmed')).toEqual([{ what }]);
  });

  it('tell that the circuit breaker opened and closed', async () => {
    using scripted = scriptedCache({ breaker: { errors: 2, open: '1m' } });
    const { cache, store } = scripted;
    using events = new RecordedEvents(['breakerOpened', 'breakerClosed']);
    const { read, ping } = store;
    store.read = away;
    store.ping = away;
    await cache.get('a');
    await cache.get('b');
    expect(events.all).toEqual([{ name: 'breakerOpened', event: { opened: 1 } }]);
    store.read = read;
    store.ping = ping;
    await eventually(() => events.of('breakerClosed').length === 1);
    expect(events.of('breakerClosed')).toEqual([{ opened: 1 }]);
  });
});

it('CacheEvents calls a listener until it is taken off', async () => {
  await using app = await cacheApp();
  const hits: string[] = [];
  const off = app.app.get(CacheEvents).on('hit', ({ key }) => hits.push(key));
  await app.cache.set('k', 1);
  await app.cache.get('k');
  off();
  await app.cache.get('k');
  expect(hits).toEqual(['k']);
});
