import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  Cached,
  CacheConfigError,
  CacheService,
  DistributedLock,
  LockConfigError,
  LockService,
  memory,
  redis,
  RedisLockModule,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { withoutServer } from 'nest-redis-lock/testing';

describe('withoutServer', () => {
  @Injectable()
  class Orders {
    @DistributedLock('order:<0>', { backend: 'critical' })
    async ship(id: string): Promise<string> {
      return id;
    }

    @DistributedLock('turn:<0>', { order: 'fifo', wait: '5s' })
    async take(_id: string, turn: number, taken: number[]): Promise<void> {
      taken.push(turn);
      await new Promise(setImmediate);
    }

    @Cached('price:<0>')
    async price(id: string): Promise<string> {
      return `price ${id}`;
    }
  }

  function appModule(how: 'forRoot' | 'forRootAsync', asked: string[] = []) {
    const url = 'redis://127.0.0.1:1';
    const options: RedisLockModuleOptions = {
      redis: url,
      fenceTtl: '1h',
      failFast: true,
      prefix: 'shop',
      backends: { critical: redis(url) },
      defaults: { wait: 0, order: 'fifo' },
      cache: { redis: url, l1: { ttl: '1s', bus: 'tracking' }, defaults: { ttl: '1h' } },
    };
    const useFactory = () => {
      asked.push('factory');
      return options;
    };
    const imported =
      how === 'forRoot' ? RedisLockModule.forRoot(options) : RedisLockModule.forRootAsync({ useFactory });
    @Module({ imports: [imported], providers: [Orders] })
    class AppModule {}
    return AppModule;
  }

  it.each(['forRoot', 'forRootAsync'] as const)('starts an application of %s that configures Redis', async (how) => {
    const asked: string[] = [];
    const imports = [appModule(how, asked)];
    const module = await withoutServer(Test.createTestingModule({ imports })).compile();
    await module.init();
    const [orders, locks, cache] = [module.get(Orders), module.get(LockService), module.get(CacheService)];
    expect(await orders.ship('7')).toBe('7');
    expect(await orders.price('7')).toBe('price 7');
    expect(await cache.get('price:7')).toBe('price 7');
    expect(await cache.ttl('price:7')).toBeGreaterThan(60_000);
    const held = await locks.acquire('order:7');
    // By the defaults of the application, which waits for nothing.
    await expect(locks.acquire('order:7')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT', waited: expect.any(Number) });
    // Kept by a backend of its own.
    expect(await orders.ship('7')).toBe('7');
    await held.release();
    const taken: number[] = [];
    await Promise.all([0, 1, 2, 3].map((turn) => orders.take('7', turn, taken)));
    expect(taken).toEqual([0, 1, 2, 3]);
    expect(asked).toEqual(how === 'forRoot' ? [] : ['factory']);
    await module.close();
  });

  it('takes options over those of the application, and leaves its other overrides', async () => {
    const builder = Test.createTestingModule({ imports: [appModule('forRoot')] });
    const price = { price: async () => 'mocked' };
    const module = await withoutServer(builder.overrideProvider(Orders).useValue(price), {
      cache: false,
      defaults: { wait: '1s' },
    }).compile();
    await module.init();
    expect(await module.get(Orders).price('7')).toBe('mocked');
    await expect(module.get(CacheService).get('a')).rejects.toThrow(CacheConfigError);
    await module.close();
  });

  it('leaves the order to a store of the test, which others may share', async () => {
    const imports = [appModule('forRoot')];
    const builder = withoutServer(Test.createTestingModule({ imports }), {
      backend: memory(),
      defaults: { wait: 0 },
      cache: false,
    });
    const module = await builder.compile();
    await module.init();
    await expect(module.get(Orders).take('7', 0, [])).rejects.toThrow('Option "order" is "fifo"');
    await module.close();
  });

  it.each([undefined, null, {}, { compile: () => {} }])('names what it takes, and not %j', (builder) => {
    expect(() => withoutServer(builder as never)).toThrow(/Option "builder" is .*Test\.createTestingModule/);
  });

  it('refuses what the module would', async () => {
    const imports = [appModule('forRoot')];
    const builder = withoutServer(Test.createTestingModule({ imports }), { prefix: '{a}' });
    await expect(builder.compile()).rejects.toThrow(LockConfigError);
  });
});
