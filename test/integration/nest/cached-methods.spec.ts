import 'reflect-metadata';
import { Injectable, Scope } from '@nestjs/common';
import {
  Cached,
  CacheConfigError,
  CacheEvict,
  CacheKeyError,
  CacheNotWiredError,
  CachePut,
  DistributedLock,
} from 'nest-redis-lock';
import { of, type Observable } from 'rxjs';
import { cacheApp } from '../../support/cache-app.js';
import { startCatalogue, untyped, calls, Catalogue, catalogue, stacked } from '../../support/cached-catalogue.js';

startCatalogue();

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
    expect(warned[0]).toMatch(/First\.one and Second\.other .* "same:<0>", with different options \(ttl\)/);
  });

  it('is not warned of where one of them is not in the application', async () => {
    await using booted = await cacheApp({ providers: [First] });
    expect(booted.logger.matching(/different options/)).toEqual([]);
  });
});
