import { Injectable } from '@nestjs/common';
import { CacheConfigError, CachePut, Cached, instancesOf, memory, type RedisLockModuleOptions } from 'nest-redis-lock';
import { cacheApp } from '../../support/cache-app.js';

class User {
  constructor(
    readonly id: string,
    readonly passwordHash = 'secret',
  ) {}
}

class Money {
  constructor(readonly cents: number) {}
}

@Injectable()
class Users {
  @Cached('user:<0>')
  async find(id: string): Promise<User> {
    return new User(id);
  }

  @Cached('revived:<0>', { revive: instancesOf(User) })
  async revived(id: string): Promise<User> {
    return new User(id);
  }

  @CachePut('money:<0>')
  async put(id: string): Promise<{ id: string; prices: Map<string, Money[]> }> {
    return { id, prices: new Map([['eur', [new Money(1)]]]) };
  }
}

describe.each<[string, RedisLockModuleOptions]>([
  ['Redis', {}],
  ['memory', { backend: memory(), redis: undefined } as object],
])('on %s', (_where, module) => {
  const start = (cache = {}) => cacheApp({ providers: [Users] }, { module: { ...module, cache } });

  it('an instance of a class without "revive" is warned of once, with the class and the remedy', async () => {
    await using app = await start();
    const users = app.app.get(Users);
    await users.find('1');
    await users.find('1');
    await users.find('2');
    const lines = app.logger.matching(/plain object/);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^The value of "user:1" is an instance of User, .*"revive: instancesOf\(User\)"/);
  });

  it('none is warned of with "revive"', async () => {
    await using app = await start();
    const users = app.app.get(Users);
    await users.revived('1');
    expect(await users.revived('1')).toBeInstanceOf(User);
    expect(app.logger.matching(/plain object/)).toEqual([]);
  });

  it('is found anywhere inside a value, whichever method stores it', async () => {
    await using app = await start();
    await app.app.get(Users).put('1');
    await app.cache.set('list', { rows: [{ id: 1 }, { owner: new User('1') }] });
    await app.cache.getOrSet('again', async () => new Set([new User('2')]));
    const lines = app.logger.matching(/plain object/);
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(/"money:1" holds an instance of Money \(\.prices\[0\]\[0\]\)/);
    expect(lines[1]).toMatch(/"list" holds an instance of User \(\.rows\[1\]\.owner\)/);
  });

  it('what the serializer keeps is not warned of', async () => {
    await using app = await start();
    const cycle: { self?: object } = {};
    cycle.self = cycle;
    const kept = { at: new Date(), map: new Map([[1, new Set([2])]]), re: /x/, bytes: Buffer.from('x'), cycle };
    await app.cache.set('kept', [kept, Object.create(null), new Error('x'), new Uint8Array(2), 7n, 'text', null]);
    expect(app.logger.matching(/plain object/)).toEqual([]);
  });

  it('a promise inside of a value is refused, and what was loaded with one is not stored', async () => {
    await using app = await start();
    const value = () => ({ rows: [{ total: Promise.resolve(1) }] });
    await expect(app.cache.set('promise', value())).rejects.toThrow(CacheConfigError);
    await expect(app.cache.set('promise', value())).rejects.toThrow(
      /"promise".*\.rows\[0\]\.total is a promise; await it/,
    );
    const loaded = value();
    expect(await app.cache.getOrSet('promise', async () => loaded)).toBe(loaded);
    expect(await app.cache.has('promise')).toBe(false);
    expect(app.logger.matching(/\.total is a promise/)).toHaveLength(1);
  });

  it.each([0, '0ms', '0s'] as const)('setTtl(%j) does not store', async (ttl) => {
    await using app = await start();
    let loads = 0;
    const load = () =>
      app.cache.getOrSet('unstored', async ({ setTtl }) => {
        setTtl(ttl);
        loads += 1;
        return loads;
      });
    expect([await load(), await load()]).toEqual([1, 2]);
    expect(await app.cache.has('unstored')).toBe(false);
  });

  it('a value that is too large is refused, and the cache goes on', async () => {
    await using app = await start({ maxValueBytes: 1_000 });
    const large = 'é'.repeat(600);
    await expect(app.cache.set('large', large)).rejects.toThrow(CacheConfigError);
    await expect(app.cache.set('large', large)).rejects.toThrow(
      /"large".* bytes, more than cache\.maxValueBytes \(1000\)/,
    );
    for (let call = 0; call < 7; call += 1) {
      expect(await app.cache.getOrSet('large', async () => large)).toBe(large);
    }
    expect(await app.cache.has('large')).toBe(false);
    expect(app.logger.matching(/"large" cannot be stored: .*maxValueBytes/)).toHaveLength(1);
    await app.cache.set('fits', 'é'.repeat(400));
    expect(await app.cache.get('fits')).toBe('é'.repeat(400));
    expect(app.cache.stats().breakerOpened).toBe(0);
  });

  it('counts the size of a value as it is compressed', async () => {
    await using app = await start({ maxValueBytes: 1_000, compression: { threshold: 100 } });
    await app.cache.set('compressed', 'a'.repeat(50_000));
    expect(await app.cache.get('compressed')).toBe('a'.repeat(50_000));
  });
});
