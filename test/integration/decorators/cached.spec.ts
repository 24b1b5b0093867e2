import 'reflect-metadata';
import { Readable } from 'node:stream';
import { jest } from '@jest/globals';
import { Injectable, Scope, StreamableFile } from '@nestjs/common';
import {
  CacheConfigError,
  Cached,
  CacheEvict,
  CacheKeyError,
  CacheNotWiredError,
  CachePut,
  CacheService,
  DistributedLock,
} from 'nest-redis-lock';
import { type Observable, of } from 'rxjs';
import { cacheApp } from '../../support/cache-app.js';
import {
  cache,
  calls,
  Catalogue,
  catalogue,
  Derived,
  type Product,
  served,
  stacked,
  startCatalogue,
  untyped,
} from '../../support/cached-catalogue.js';

startCatalogue();

const STREAMS: [kind: string, make: () => unknown][] = [
  ['an Observable', () => of('x')],
  ['an iterator', () => ['x'].values()],
  ['a stream', () => Readable.from(['x'])],
  ['a stream', () => new Blob(['x']).stream()],
  ['a StreamableFile', () => new StreamableFile(Buffer.from('x'))],
  ['a Response', () => new Response('x')],
  ['a Response', () => ({ [Symbol.toStringTag]: 'Response' })],
];

describe('@Cached', () => {
  it('runs the method once for a key, from an argument, a path or a function', async () => {
    expect(await catalogue.byArgument(7)).toEqual({ id: 7, price: 1 });
    expect(await catalogue.byArgument(7)).toEqual({ id: 7, price: 1 });
    expect(await catalogue.byArgument(8)).toEqual({ id: 8, price: 1 });
    expect(await cache.get('product:7')).toEqual({ id: 7, price: 1 });
    await catalogue.byPath({ id: 7 }, 'shop');
    await catalogue.byPath({ id: 7 }, 'shop');
    expect(await cache.get('product:7:shop')).toEqual({ id: 7, price: 1 });
    await catalogue.byFunction({ id: 7, price: 1 }, 'shop');
    await catalogue.byFunction({ id: 7, price: 1 }, 'shop');
    expect(await cache.get('shop/7')).toEqual({ id: 7, price: 1 });
    expect(calls).toEqual(['byArgument 7', 'byArgument 8', 'byPath 7', 'byFunction 7']);
  });

  it.each([undefined, null, '', Number.NaN, {}, [], () => 'f'])(
    'refuses the value %p in a key, and does not run the method',
    async (value) => {
      await expect(catalogue.byArgument(value)).rejects.toBeInstanceOf(CacheKeyError);
      await expect(catalogue.byPath({ id: value }, 's')).rejects.toBeInstanceOf(CacheKeyError);
      expect(calls).toEqual([]);
    },
  );

  it.each([undefined, '', ['a'], 7])('refuses %j of a key function, and does not run the method', async (key) => {
    await expect(catalogue.byNoKey(key)).rejects.toBeInstanceOf(CacheKeyError);
    expect(calls).toEqual([]);
  });

  it('is not forged by a value', async () => {
    await catalogue.byPath({ id: 'a:b' }, 'c');
    await catalogue.byPath({ id: 'a' }, 'b:c');
    expect(calls).toHaveLength(2);
  });

  it('tags what it stores', async () => {
    const parts = [{ sku: 'x' }, { sku: 'y' }];
    const load = () => catalogue.tagged({ id: 1, price: 1, parts });
    await load();
    for (const tag of ['part:x', 'part:y', 'catalogue']) {
      await cache.deleteByTag(tag);
      await load();
    }
    await cache.deleteByTag('part:z');
    await load();
    expect(calls).toHaveLength(4);
    await catalogue.taggedByFunction(2);
    await cache.deleteByTag('even:true');
    await catalogue.taggedByFunction(2);
    expect(calls).toHaveLength(6);
  });

  it('does not use the cache if the condition is false', async () => {
    await catalogue.unlessFresh(1, true);
    expect(await cache.get('fresh:1')).toBeUndefined();
    await catalogue.unlessFresh(1);
    catalogue.prices.set(1, 2);
    expect(await catalogue.unlessFresh(1, true)).toEqual({ id: 1, price: 2 });
    expect(await catalogue.unlessFresh(1)).toEqual({ id: 1, price: 1 });
  });

  it('does not store what unless refuses', async () => {
    catalogue.prices.set(1, 0).set(7, 0);
    expect(await catalogue.unlessFree(1)).toEqual({ id: 1, price: 0 });
    expect(await cache.get('free:1')).toBeUndefined();
    await catalogue.unlessFree(7);
    expect(await cache.get('free:7')).toEqual({ id: 7, price: 0 });
  });

  it("passes the method's error on untouched, and stores nothing", async () => {
    const error = new Error('business');
    await expect(catalogue.fails(1, error)).rejects.toBe(error);
    await expect(catalogue.fails(1, error)).rejects.toBe(error);
    expect(calls).toEqual(['fails', 'fails']);
  });

  it.each(STREAMS)('refuses %s, and stores nothing', async (kind, make) => {
    await expect(catalogue.stream('s', make)).rejects.toBeInstanceOf(CacheConfigError);
    await expect(catalogue.stream('s', make)).rejects.toThrow(new RegExp(`Catalogue\\.stream returned ${kind}`));
    expect(calls).toEqual(['stream', 'stream']);
    expect(await cache.get('stream:s')).toBeUndefined();
  });

  it('works through this, and in a subclass', async () => {
    await catalogue.outer(1);
    await catalogue.byArgument(1);
    await served.app.get(Derived).byArgument(1);
    expect(calls).toEqual(['outer', 'byArgument 1']);
  });

  it('works on a controller, above and below the route', async () => {
    await served.app.listen(0, '127.0.0.1');
    const url = await served.app.getUrl();
    for (const path of ['above/1', 'above/1', 'below/2', 'below/2']) {
      expect(await (await fetch(`${url}/${path}`)).text()).toBe(path.slice(-1));
    }
    expect(calls).toEqual(['above 1', 'below 2']);
  });
});

describe('@CacheEvict', () => {
  const stored = (id: number) => cache.get(`product:${id}`);

  it('deletes the value once the method has succeeded', async () => {
    await catalogue.byArgument(1);
    expect(await catalogue.save({ id: 1, price: 5 })).toBe('saved');
    expect(await catalogue.byArgument(1)).toEqual({ id: 1, price: 5 });
  });

  it('makes its keys before the method runs', async () => {
    await catalogue.byArgument(1);
    await catalogue.saveAndChange({ id: 1, price: 1 });
    expect(await stored(1)).toBeUndefined();
  });

  it('refuses a value before the method runs', async () => {
    await expect(catalogue.save({ price: 1 } as Product)).rejects.toBeInstanceOf(CacheKeyError);
    expect(calls).toEqual([]);
  });

  it('deletes several, from templates, the elements of a list, or a function that may name none', async () => {
    await cache.set('product:1', 'a');
    await cache.set('part:x', 'b');
    await cache.set('part:y', 'c');
    await catalogue.saveParts({ id: 1, price: 1, parts: [{ sku: 'x' }, { sku: 'y' }] });
    for (const key of ['product:1', 'part:x', 'part:y']) expect(await cache.get(key)).toBeUndefined();
    await cache.set('product:1', 'a');
    await cache.set('product:2', 'b');
    await catalogue.saveAll([]);
    expect(await stored(1)).toBe('a');
    await catalogue.saveAll([1, 2]);
    expect(await stored(1)).toBeUndefined();
    expect(await stored(2)).toBeUndefined();
  });

  it('deletes by tag and by prefix', async () => {
    await cache.set('one', 1, { tags: ['part:x'] });
    await cache.set('two', 2, { tags: ['part:y'] });
    await cache.set('free:x:1', 3);
    await catalogue.savePart('x');
    expect(await cache.get('one')).toBeUndefined();
    expect(await cache.get('two')).toBe(2);
    expect(await cache.get('free:x:1')).toBeUndefined();
    await catalogue.savePartByFunction('y');
    expect(await cache.get('two')).toBeUndefined();
  });

  it.each([
    ['evictAfter', { during: 'old', succeeded: undefined, failed: 'old' }],
    ['evictBefore', { during: undefined, succeeded: 'new', failed: 'new' }],
    ['evictBoth', { during: undefined, succeeded: undefined, failed: undefined }],
  ] as const)('%s', async (method, expected) => {
    const error = new Error('business');
    let during: unknown;
    const body = async () => {
      during = await stored(1);
      if (during === undefined) await cache.set('product:1', 'new');
      return 'done';
    };
    await cache.set('product:1', 'old');
    expect(await catalogue[method](1, body)).toBe('done');
    const succeeded = await stored(1);
    await cache.set('product:1', 'old');
    const failing = async () => {
      await body();
      throw error;
    };
    await expect(catalogue[method](1, failing)).rejects.toBe(error);
    expect({ during, succeeded, failed: await stored(1) }).toEqual(expected);
  });

  it("passes the method's error on where the eviction fails too, which it warns of", async () => {
    const fake = { invalidate: jest.fn<() => Promise<void>>() };
    fake.invalidate.mockResolvedValueOnce().mockRejectedValue(new Error('Redis is down'));
    await using booted = await cacheApp({ providers: [Catalogue, { provide: CacheService, useValue: fake }] });
    const error = new Error('business');
    const failing = booted.app.get(Catalogue).evictBoth(1, async () => {
      throw error;
    });
    await expect(failing).rejects.toBe(error);
    expect(fake.invalidate).toHaveBeenCalledTimes(2);
    expect(booted.logger.matching(/Catalogue\.evictBoth failed, .* not evicted: Error: Redis is down/)).toHaveLength(1);
  });

  it.each(STREAMS)('refuses %s, whose work may run after the eviction, and evicts', async (kind, make) => {
    for (const method of ['evictAfter', 'evictBefore', 'evictBoth'] as const) {
      await catalogue.byArgument(1);
      // As a load that begins while the method runs does.
      const body = async () => {
        await catalogue.byArgument(1);
        return make();
      };
      await expect(catalogue[method](1, body)).rejects.toThrow(
        new CacheConfigError(
          `Catalogue.${method} returned ${kind}, whose work may run after the eviction, while it is read; read it to ` +
            'its end and return its content, as by lastValueFrom()',
        ),
      );
      expect(await cache.get('product:1')).toBeUndefined();
    }
  });
});

describe('@CachePut', () => {
  it('stores the result of every call', async () => {
    await catalogue.put({ id: 1, price: 5 });
    expect(await catalogue.byArgument(1)).toEqual({ id: 1, price: 5 });
    await catalogue.put({ id: 1, price: 6 });
    expect(await catalogue.byArgument(1)).toEqual({ id: 1, price: 6 });
    expect(calls).toEqual([]);
  });

  it('stores what value makes, with tags, unless or under a condition', async () => {
    expect(await catalogue.putPart({ id: 1, price: 5 }, 'x')).toEqual({ saved: { id: 1, price: 5 } });
    expect(await cache.get('product:1')).toEqual({ id: 1, price: 6 });
    await cache.deleteByTag('part:x');
    expect(await cache.get('product:1')).toBeUndefined();
    await catalogue.putPart({ id: 1, price: 0 }, 'x');
    expect(await cache.get('product:1')).toBeUndefined();
    await catalogue.putPart({ id: 0, price: 5 }, 'x');
    expect(await cache.get('product:0')).toBeUndefined();
  });

  it('stores nothing where the method fails, where its value is a stream, and where there is no key', async () => {
    const error = new Error('business');
    await expect(
      catalogue.putChanged(1, () => {
        throw error;
      }),
    ).rejects.toBe(error);
    calls.length = 0;
    await expect(catalogue.putChanged({ id: 1 }, () => 1)).rejects.toBeInstanceOf(CacheKeyError);
    expect(calls).toEqual([]);
  });

  it.each(STREAMS)('refuses %s, also where value or condition says what is stored', async (kind, make) => {
    for (const method of ['putChanged', 'putValue', 'putNever'] as const) {
      await catalogue.byArgument(1);
      await expect(catalogue[method](1, make)).rejects.toBeInstanceOf(CacheConfigError);
      await expect(catalogue[method](1, make)).rejects.toThrow(`Catalogue.${method} returned ${kind}, which`);
      expect(await cache.get('product:1')).toBeUndefined();
    }
  });
});

describe('decorators on one method', () => {
  it('answer from the cache without the lock, where the cache stands above it', async () => {
    expect(await stacked.cacheAbove('1')).toEqual(['lock:1']);
    const held = await stacked.locks.acquire('lock:1');
    expect(await stacked.cacheAbove('1')).toEqual(['lock:1']);
    await expect(stacked.cacheAbove('2')).resolves.toEqual(['lock:2']);
    expect(calls).toEqual(['cacheAbove', 'cacheAbove']);
    await held.release();
  });

  it('need the lock for a cached answer too, where the lock stands above', async () => {
    expect(await stacked.cacheBelow('1')).toEqual(['lock:1']);
    expect(await stacked.cacheBelow('1')).toEqual(['lock:1']);
    const held = await stacked.locks.acquire('lock:1');
    await expect(stacked.cacheBelow('1')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    expect(calls).toEqual(['cacheBelow']);
    await held.release();
  });

  it('apply all', async () => {
    await stacked.cacheAbove('1');
    expect(await stacked.evictAndPut('1')).toEqual(['lock:1', 'put']);
    expect(await stacked.cacheBelow('1')).toEqual(['lock:1', 'put']);
    await stacked.cacheAbove('1');
    expect(calls).toEqual(['cacheAbove', 'evictAndPut', 'cacheAbove']);
  });
});

describe('an instance', () => {
  it('is left its names, and the method its metadata, name and length', () => {
    expect(catalogue.cacheService).toBe('mine');
    expect(Object.keys(catalogue).toSorted()).toEqual(['cacheService', 'prices']);
    expect(Reflect.getMetadata('tag', Catalogue.prototype.above)).toBe('above');
    expect(Reflect.getMetadata('tag', Catalogue.prototype.below)).toBe('below');
    expect(Catalogue.prototype.above.name).toBe('above');
    expect(Catalogue.prototype.below).toHaveLength(2);
  });

  it('that Nest did not make runs nothing', async () => {
    const alone = new Catalogue();
    const running = [
      alone.byArgument(1),
      alone.unlessFresh(1, true),
      alone.save({ id: 1, price: 1 }),
      alone.put({ id: 1, price: 1 }),
    ];
    for (const result of await Promise.allSettled(running)) {
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'CACHE_NOT_WIRED' } });
    }
    await expect(alone.byArgument(1)).rejects.toBeInstanceOf(CacheNotWiredError);
    await expect(alone.byArgument(1)).rejects.toThrow(
      /Catalogue\.byArgument did not run: its instance has no CacheService/,
    );
    expect(calls).toEqual([]);
  });

  it('of a factory or a value is given the cache, and the locks', async () => {
    class Both {
      @Cached('both:<0>')
      @DistributedLock('both:<0>')
      async run(id: string): Promise<string> {
        calls.push(`run ${id}`);
        return id;
      }
    }
    await using booted = await cacheApp({
      providers: [
        { provide: 'value', useValue: new Both() },
        { provide: 'factory', useFactory: async () => Promise.resolve(new Both()) },
        { provide: 'request', scope: Scope.REQUEST, useFactory: () => new Both() },
      ],
    });
    for (const token of ['value', 'factory']) {
      const both = booted.app.get<Both>(token);
      expect(await both.run(token)).toBe(token);
      expect(await both.run(token)).toBe(token);
    }
    expect(calls).toEqual(['run value', 'run factory']);
    expect(booted.logger.matching(/The provider/)).toEqual([]);
    const request = await booted.app.resolve<Both>('request');
    await expect(request.run('1')).rejects.toBeInstanceOf(CacheNotWiredError);
  });

  it('that two applications share keeps the cache of the first until that has ended', async () => {
    class Shared {
      @Cached('shared')
      async run(): Promise<string> {
        return 'ran';
      }
    }
    const providers = [{ provide: 'value', useValue: new Shared() }];
    const first = await cacheApp({ providers });
    await using second = await cacheApp({ providers });
    expect(second.logger.matching(/value \(Shared\) has the CacheService of another application/)).toHaveLength(1);
    await first.close();
    await using third = await cacheApp({ providers });
    expect(third.logger.matching(/The provider/)).toEqual([]);
    await third.app.get<Shared>('value').run();
    expect(await third.cache.get('shared')).toBe('ran');
  });

  it('that is frozen is refused', async () => {
    const starting = cacheApp({ providers: [{ provide: 'value', useValue: Object.freeze(new Catalogue()) }] });
    await expect(starting).rejects.toThrow(/provider value \(Catalogue\) has methods with @Cached.*frozen/);
  });
});

describe('at decoration', () => {
  it.each(['', 'a<', '<a>', '<0><1>', 'sku:<0.*>', ['a'], ['a', 'b']])('one key is refused for %j', (key) => {
    expect(() => Cached(key as string)).toThrow(CacheKeyError);
    expect(() => CachePut(key as string)).toThrow(CacheKeyError);
  });

  it('an eviction is refused that has no keys, or wrong ones', () => {
    for (const keys of ['', 'a<', []]) expect(() => CacheEvict(keys)).toThrow(CacheKeyError);
    expect(() => CacheEvict([], { tags: [] })).toThrow(CacheKeyError);
    expect(() => CacheEvict([], { prefix: '' })).toThrow(CacheKeyError);
  });

  it.each([
    () => Cached('x', { ttl: 'soon' as '1s' }),
    () => Cached('x', { jitter: 2 }),
    () => Cached('x', untyped({ condition: true })),
    () => Cached('x', untyped({ unless: 'null' })),
    () => Cached('x', untyped({ unknown: 1 })),
    () => CacheEvict('x', { when: 'later' as 'after' }),
    () => CacheEvict('x', { barrier: -1 }),
    () => CacheEvict('x', { onRedisError: 'skip' as 'open' }),
    () => CacheEvict('x', untyped({ ttl: 1 })),
    () => CachePut('x', { ttl: 0 }),
    () => CachePut('x', untyped({ value: 1 })),
    () => CachePut('x', untyped({ softTimeout: 1 })),
  ])('options are refused: %s', (decorate) => {
    expect(decorate).toThrow(CacheConfigError);
  });

  it('a method is refused that cannot be cached', () => {
    class Odd {
      static async still(): Promise<void> {}
      async *generate(): AsyncGenerator<number> {
        yield 1;
      }
      get property(): number {
        return 1;
      }
      observable(): Observable<number> {
        return of(1);
      }
    }
    Reflect.defineMetadata('design:returntype', of(1).constructor, Odd.prototype, 'observable');
    for (const decorator of [Cached('x'), CacheEvict('x'), CachePut('x')]) {
      for (const [target, key] of [
        [Odd, 'still'],
        [Odd.prototype, 'generate'],
        [Odd.prototype, 'property'],
        [Odd.prototype, 'observable'],
      ] as const) {
        const descriptor = Object.getOwnPropertyDescriptor(target, key) as TypedPropertyDescriptor<() => Promise<void>>;
        expect(() => decorator(target, key, descriptor)).toThrow(CacheConfigError);
      }
    }
  });
});

describe('a key template that methods share', () => {
  @Injectable()
  class First {
    @Cached('same:<0>', { ttl: '5m', unless: (result: string) => result === '' })
    async one(id: string): Promise<string> {
      return id;
    }

    @Cached('alike:<0>', { ttl: '5m', unless: (result: string) => result === '' })
    async alike(id: string): Promise<string> {
      return id;
    }
  }

  @Injectable()
  class Second {
    @Cached('same:<0>', { ttl: '1h', unless: (result: string) => result === '' })
    async other(id: string): Promise<string> {
      return id;
    }

    @Cached('alike:<0>', { ttl: '5m', unless: (result: string) => result === '' })
    async alike(id: string): Promise<string> {
      return id;
    }
  }

  it('is warned of once where their options differ, with their names', async () => {
    @Injectable()
    class Inheriting extends First {}
    await using booted = await cacheApp({
      providers: [First, Inheriting, { provide: 'second', useFactory: () => new Second() }],
    });
    const warned = booted.logger.matching(/different options/);
    expect(warned).toHaveLength(1);
    expect(warned[0]).toMatch(
      /First\.one and Inheriting\.one and Second\.other .* "same:<0>", with different options \(ttl\)/,
    );
  });

  it('is not warned of where one of them is not in the application', async () => {
    await using booted = await cacheApp({ providers: [First] });
    expect(booted.logger.matching(/different options/)).toEqual([]);
  });
});
