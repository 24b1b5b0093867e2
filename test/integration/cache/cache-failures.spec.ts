import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { CacheEvict, CacheKeyError, CachePut } from 'nest-redis-lock';
import { openRedisCacheStore } from '../../../lib/backends/redis/cache/redis-cache-store.js';
import { cacheApp } from '../../support/cache-app.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { scriptedCache } from '../../support/scripted-cache.js';
import { startRedis, server, read } from '../../support/one-redis.js';

startRedis();

describe('A loader', () => {
  it('may return what throws when it is looked at', async () => {
    using scripted = scriptedCache();
    const strict = new Proxy(
      {},
      {
        get: (_, name) => {
          throw new Error(`no ${String(name)}`);
        },
      },
    );
    await expect(scripted.cache.getOrSet('k', () => strict)).rejects.toThrow('no then');
    expect(await read(scripted.cache, 'k', 'next')).toBe('next');
  });

  it('that has ended leaves no trace in what it began', async () => {
    using scripted = scriptedCache();
    const { cache } = scripted;
    const gate = new Gate();
    let later: Promise<string> | undefined;
    const value = await cache.getOrSet('k', () => {
      later = gate.opened.then(() => read(cache, 'k', 'loaded again'));
      return 'loaded';
    });
    const other = new Gate();
    const loading = cache.getOrSet('other', () => other.opened.then(() => ''));
    await eventually(() => scripted.engine.counters.loads === 2);
    gate.open();
    expect(await later).toBe(value);
    other.open();
    await loading;
  });
});

it('A store whose client is closed says so at once, also of tags', async () => {
  const client = new Redis(server.url);
  const store = openRedisCacheStore(client, 'closed');
  await client.ping();
  client.disconnect();
  await eventually(() => client.status === 'end');
  const soon = (answer: unknown) => Promise.race([answer, sleep(1_000).then(() => 'too late')]);
  await expect(soon(store.readTags(['t']))).rejects.toThrow('closed');
  await expect(soon(store.beginTags(['t'], 1_000))).rejects.toThrow('closed');
  store.close();
});

describe('A decorated method', () => {
  let ran = 0;

  @Injectable()
  class Shop {
    @CacheEvict((id: number) => (id === 1 ? '' : `product:${id}`))
    async change(_id: number): Promise<void> {
      ran += 1;
    }

    @CachePut('put:<0>', { value: async (result: string) => `${result}!` })
    async put(_id: number): Promise<string> {
      return 'made';
    }
  }

  it('does not run where its key function makes no key', async () => {
    await using app = await cacheApp({ providers: [Shop] });
    await expect(app.app.get(Shop).change(1)).rejects.toThrow(CacheKeyError);
    expect(ran).toBe(0);
  });

  it('puts what the promise of value resolves to', async () => {
    await using app = await cacheApp({ providers: [Shop] });
    await app.app.get(Shop).put(1);
    expect(await app.cache.get('put:1')).toBe('made!');
  });
});
