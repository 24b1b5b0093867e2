import 'reflect-metadata';
import { readFileSync } from 'node:fs';
import { Inject, Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import getPort from 'get-port';
import { Redis } from 'ioredis';
import {
  CacheConfigError,
  CacheService,
  DistributedLock,
  LockBackendError,
  LockConfigError,
  LockLostError,
  LockService,
  memory,
  redis,
  RedisLockModule,
  type RedisLockModuleOptions,
  type RedisLockOptionsFactory,
} from 'nest-redis-lock';
import { RedisLockTestingModule } from 'nest-redis-lock/testing';
import { openCache } from '../../support/cache-instance.js';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { RecordingLogger } from '../../support/recording-logger.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

/** Counts the connections to `url` that were opened since: the server may still list those of an application before. */
async function openedSince(url: string) {
  const client = new Redis(url);
  const ids = async () => [...String(await client.client('LIST')).matchAll(/^id=(\d+)/gm)].map(([, id]) => Number(id));
  const newest = Math.max(...(await ids()));
  return {
    count: async () => (await ids()).filter((id) => id > newest).length,
    [Symbol.asyncDispose]: async () => client.disconnect(),
  };
}

describe('RedisLockModule', () => {
  describe('configuration', () => {
    it('takes ConfigService as the guide shows it, from a ConfigModule that is not global', async () => {
      @Injectable()
      class ConfigService {
        getOrThrow = (): string => server.url;
      }
      @Module({ providers: [ConfigService], exports: [ConfigService] })
      class ConfigModule {}
      const page = readFileSync(new URL('../../../docs/guide/redis.md', import.meta.url), 'utf8');
      const [sample = ''] = /^RedisLockModule\.forRootAsync\(\{[^;]*inject: \[ConfigService\][^;]*;/m.exec(page) ?? [];
      const imported = RedisLockModule.forRootAsync({
        imports: sample.includes('imports: [ConfigModule]') ? [ConfigModule] : [],
        inject: [ConfigService],
        useFactory: (config: ConfigService) => ({ redis: config.getOrThrow() }),
      });
      @Module({ imports: [ConfigModule, imported] })
      class App {}
      const app = await NestFactory.createApplicationContext(App, { logger: false, abortOnError: false });
      expect(await app.get(LockService).withLock('configured', async () => 'ran')).toBe('ran');
      await app.close();
    });

    @Injectable()
    class OptionsFactory implements RedisLockOptionsFactory {
      async createRedisLockOptions(): Promise<RedisLockModuleOptions> {
        return { redis: server.url };
      }
    }

    @Module({ providers: [OptionsFactory], exports: [OptionsFactory] })
    class OptionsModule {}

    it.each([
      ['forRoot with a URL', () => RedisLockModule.forRoot({ redis: server.url })],
      ['forRoot with options', () => RedisLockModule.forRoot({ redis: { host: '127.0.0.1', port: server.port } })],
      ['useFactory', () => RedisLockModule.forRootAsync({ useFactory: async () => ({ redis: server.url }) })],
      ['useClass', () => RedisLockModule.forRootAsync({ useClass: OptionsFactory })],
      ['useExisting', () => RedisLockModule.forRootAsync({ imports: [OptionsModule], useExisting: OptionsFactory })],
    ])('takes %s', async (_how, lockModule) => {
      @Module({ imports: [lockModule()] })
      class App {}
      const app = await NestFactory.createApplicationContext(App, { logger: false });
      expect(await app.get(LockService).withLock('configured', async () => 'ran')).toBe('ran');
      await app.close();
    });

    it.each([
      ['none is', {}],
      ['"useFactory" and "useClass"', { useFactory: () => ({ redis: server.url }), useClass: OptionsFactory }],
    ])('refuses forRootAsync where %s set', (given, options) => {
      expect(() => RedisLockModule.forRootAsync(options)).toThrow(
        new LockConfigError(`Options "useFactory", "useClass" and "useExisting": ${given} set; give exactly one`),
      );
    });

    it.each(['useFactory', 'useClass'])('refuses a %s that cannot be called', (name) => {
      expect(() => RedisLockModule.forRootAsync({ [name]: { redis: server.url } })).toThrow(
        new LockConfigError(`Option "${name}" is [object Object]; give a function or a class`),
      );
    });

    it('is global by default', async () => {
      @Injectable()
      class Elsewhere {
        constructor(@Inject(LockService) readonly locks: LockService) {}
      }
      @Module({ providers: [Elsewhere] })
      class ElsewhereModule {}
      const compile = (isGlobal: boolean) =>
        Test.createTestingModule({
          imports: [RedisLockModule.forRoot({ backend: memory(), isGlobal }), ElsewhereModule],
        }).compile();
      const module = await compile(true);
      expect(module.get(Elsewhere, { strict: false }).locks).toBeInstanceOf(LockService);
      await module.close();
      await expect(compile(false)).rejects.toThrow(/can't resolve dependencies of the Elsewhere/);
    });

    it('has further backends by name', async () => {
      const backends = { local: memory(), other: redis(server.url) };
      await using app = await startLockApp({ redis: server.url, backends, prefix: 'named' });
      const main = await app.locks.acquire('name');
      const local = await app.locks.acquire('name', { backend: 'local', wait: 0 });
      expect(await app.locks.tryAcquire('name', { backend: 'other' })).toBeNull();
      expect((await app.locks.inspect('name', { backend: 'local' }))?.owner).toBe(local.owner);
      expect((await app.locks.inspect('name', { backend: 'other' }))?.owner).toBe(main.owner);
      await main.release();
      await local.release();
    });

    it('takes defaults for the options of its locks', async () => {
      await using app = await startLockApp({ redis: server.url, defaults: { ttl: 1_000, wait: 50 } });
      const held = await app.locks.acquire('defaults');
      expect(held.remaining()).toBeLessThanOrEqual(1_000);
      const stop = new AbortController();
      const longer = app.locks.acquire('defaults', { wait: 2_500, signal: stop.signal }).catch(() => 'longer');
      const shorter = app.locks.acquire('defaults').catch((error: unknown) => error);
      expect(await Promise.race([longer, shorter])).toMatchObject({ code: 'LOCK_TIMEOUT' });
      stop.abort();
      await held.release();
    });

    it.each<[object, RegExp]>([
      [{}, /"redis" and "backend": neither/],
      [{ redis: 'redis://x', backend: memory() }, /"redis" and "backend": both/],
      [{ redis: 'http://user:secret@host' }, /"redis" is "http:\/\/..."; give a URL/],
      [{ redis: 6379 }, /"redis" is 6379; give/],
      [{ redis: 'redis://x', prefix: '{shop}' }, /"prefix" is "{shop}"; give a string without braces/],
      [{ redis: 'redis://x', prefix: '' }, /"prefix" is ""/],
      // The locks of one application would be values of the cache of another.
      [{ redis: 'redis://x', prefix: 'cache' }, /"prefix" is "cache"; give a prefix without "cache" between colons/],
      [{ redis: 'redis://x', prefix: 'shop:cache' }, /"prefix" is "shop:cache"/],
      [{ redis: 'redis://x', prefix: 'shop:lock:eu' }, /a prefix without "lock" between colons/],
      [{ redis: 'redis://x', prefix: 'cache-tag:shop' }, /a prefix without "cache-tag" between colons/],
      [{ redis: 'redis://x', commandTimeout: 0 }, /"commandTimeout" is 0; give/],
      [{ redis: 'redis://x', shutdownGrace: -1 }, /"shutdownGrace" is -1; give/],
      [{ redis: 'redis://x', failFast: 'yes' }, /"failFast" is "yes"; give/],
      [{ redis: 'redis://x', defaults: { ttl: 5 } }, /"ttl" is 5; give/],
      [{ redis: 'redis://x', backends: { other: {} } }, /"backends.other" is .*; give a LockBackend/],
      [{ redis: 'redis://x', retries: 3 }, /Unknown module option "retries"; give any of redis/],
    ])('refuses %p', async (options, message) => {
      const error: unknown = await startLockApp(options as RedisLockModuleOptions).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(LockConfigError);
      expect((error as Error).message).toMatch(message);
    });
  });

  describe('boot without Redis', () => {
    it('is not delayed, warns once, and locks fail until it is there', async () => {
      const port = await getPort();
      await using app = await startLockApp({ redis: { host: '127.0.0.1', port }, commandTimeout: 300 });
      await expect(app.locks.acquire('early', { wait: 0 })).rejects.toBeInstanceOf(LockBackendError);
      await expect(app.locks.isLocked('early')).rejects.toBeInstanceOf(LockBackendError);
      await eventually(() => app.logger.lines.length > 0);
      expect(app.logger.lines.map(({ level }) => level)).toEqual(['warn']);
      await using late = await startRedisServer({ port });
      const lock = await app.locks.acquire('early', { wait: 10_000 });
      expect(lock.held).toBe(true);
      await lock.release();
      expect(late.port).toBe(port);
    });

    it('fails with failFast', async () => {
      const port = await getPort();
      const starting = startLockApp({ redis: { host: '127.0.0.1', port }, commandTimeout: 300, failFast: true });
      await expect(starting).rejects.toBeInstanceOf(LockBackendError);
    });
  });

  describe('shutdown', () => {
    it('refuses new locks, lets holders finish, and frees what they held', async () => {
      await using other = await startLockApp({ redis: server.url });
      const app = await startLockApp({ redis: server.url });
      const [began, gate] = [new Gate(), new Gate()];
      let nested = false;
      const holding = app.locks.withLock('drained', async (lock) => {
        began.open();
        await gate.opened;
        await app.locks.withLock('drained', async () => {
          await app.locks.withLock('drained:step', async () => {
            nested = true;
          });
        });
        expect(lock.held).toBe(true);
        return 'finished';
      });
      await began.opened;
      const held = await other.locks.acquire('waited-for');
      const waiting = app.locks.acquire('waited-for').catch((error: unknown) => error);
      const closing = app.close();
      expect(await waiting).toBeInstanceOf(LockBackendError);
      await expect(app.locks.acquire('late')).rejects.toMatchObject({ code: 'LOCK_BACKEND', statusCode: 503 });
      expect(await other.locks.isLocked('drained')).toBe(true);
      gate.open();
      expect(await holding).toBe('finished');
      expect(nested).toBe(true);
      await closing;
      expect(await other.locks.isLocked('drained')).toBe(false);
      await held.release();
    });

    it('takes the lock from holders that do not finish within the grace', async () => {
      await using other = await startLockApp({ redis: server.url });
      const app = await startLockApp({ redis: server.url, shutdownGrace: 200 });
      const patient = await startLockApp({ redis: server.url, shutdownGrace: '1h' });
      const finish = new Gate();
      const stuckIn = async ({ locks }: LockApp, name: string) => {
        const began = new Gate();
        const holding = locks.withLock(name, ({ signal }) => {
          began.open();
          return Promise.race([finish.opened, new Promise((resolve) => signal.addEventListener('abort', resolve))]);
        });
        await began.opened;
        return { holding: holding.catch((error: unknown) => error) };
      };
      const [{ holding }] = [await stuckIn(app, 'stuck'), await stuckIn(patient, 'patient')];
      const closing = patient.close();
      await app.close();
      expect(await other.locks.isLocked('patient')).toBe(true);
      finish.open();
      await closing;
      const error = await holding;
      expect(error).toBeInstanceOf(LockLostError);
      expect(error).toMatchObject({ reason: 'shutdown' });
      expect(await other.locks.isLocked('stuck')).toBe(false);
    });

    it('refuses code that is still inside of a lock after it', async () => {
      const client = new Redis(server.url);
      const app = await startLockApp({ redis: client, shutdownGrace: 10 });
      const [began, closed] = [new Gate(), new Gate()];
      const told: unknown[] = [];
      const holding = app.locks.withLock('outlived', async () => {
        began.open();
        await closed.opened;
        for (const name of ['outlived', 'further']) {
          told.push(await app.locks.withLock(name, async () => 'ran').catch((error: unknown) => error));
        }
      });
      await began.opened;
      await app.close();
      closed.open();
      await expect(holding).rejects.toMatchObject({ reason: 'shutdown' });
      for (const error of told) {
        expect(error).toBeInstanceOf(LockBackendError);
        expect((error as Error).message).toContain('shutting down');
      }
      expect(await client.exists('lock:{outlived}', 'lock:{further}')).toBe(0);
      await client.quit();
    });

    it('happens on SIGTERM', async () => {
      const child = Child.start('holds-until-told.mjs', [String(server.port), 'signalled', '300']);
      try {
        await child.says('held');
        child.signal('SIGTERM');
        expect(await child.says('ended')).toEqual({ error: 'LockLostError', reason: 'shutdown' });
        await child.exited;
        await using app = await startLockApp({ redis: server.url });
        expect(await app.locks.isLocked('signalled')).toBe(false);
      } finally {
        await child.kill();
      }
    });

    it('leaves nothing that keeps the process alive', async () => {
      const child = Child.start('one-job.mjs', [String(server.port)]);
      try {
        await child.says('done');
        let code: number | null | undefined;
        void child.exited.then((exitCode) => (code = exitCode));
        await eventually(() => code !== undefined || child.output.includes('alive'));
        expect([code, child.output.includes('alive')]).toEqual([0, false]);
      } finally {
        await child.kill();
      }
    });
  });

  describe('RedisLockTestingModule', () => {
    @Injectable()
    class Stock {
      left = 5;

      @DistributedLock('stock:<0>', { wait: 10_000 })
      async take(_sku: string): Promise<boolean> {
        const { left } = this;
        await new Promise((resolve) => setTimeout(resolve, 2));
        if (left === 0) return false;
        this.left = left - 1;
        return true;
      }
    }

    it.each([
      ['bare', RedisLockTestingModule],
      ['with options', RedisLockTestingModule.forRoot({ defaults: { ttl: 500 }, shutdownGrace: 0 })],
    ])('really excludes, without a server (%s)', async (_how, lockModule) => {
      const module = await Test.createTestingModule({ imports: [lockModule], providers: [Stock] }).compile();
      const stock = module.get(Stock);
      const taken = await Promise.all(Array.from({ length: 20 }, () => stock.take('teapot')));
      expect(taken.filter(Boolean)).toHaveLength(5);
      expect(stock.left).toBe(0);
      await module.close();
    });

    it('gives every application locks of its own', async () => {
      const compile = () => Test.createTestingModule({ imports: [RedisLockTestingModule] }).compile();
      const [one, two] = await Promise.all([compile(), compile()]);
      const lock = await one.get(LockService).acquire('own');
      const same = await two.get(LockService).tryAcquire('own');
      expect(same?.held).toBe(true);
      await Promise.all([lock.release(), same?.release()]);
      await Promise.all([one.close(), two.close()]);
    });

    it('says nothing', async () => {
      const logger = new RecordingLogger();
      const module = await Test.createTestingModule({ imports: [RedisLockTestingModule] })
        .setLogger(logger)
        .compile();
      await module.init();
      await module.close();
      expect(logger.lines).toEqual([]);
    });
  });
});

describe('the cache of the module', () => {
  describe('where values are kept', () => {
    it('is the Redis of the locks, under the prefix', async () => {
      await using instance = await openCache({ redis: server.url, prefix: 'shop' });
      await instance.cache.set('a', 'x');
      const client = new Redis(server.url);
      try {
        expect(await client.exists('shop:cache:a')).toBe(1);
      } finally {
        client.disconnect();
      }
    });

    it('is another Redis where the cache has one of its own', async () => {
      const other = await startRedisServer();
      try {
        await using instance = await openCache({ redis: server.url, cache: { redis: other.url } });
        await instance.cache.set('elsewhere', 1);
        const client = new Redis(other.url);
        try {
          expect(await client.exists('cache:elsewhere')).toBe(1);
        } finally {
          client.disconnect();
        }
      } finally {
        await other.stop();
      }
    });

    it('is the memory of the application with memory()', async () => {
      await using instance = await openCache({ backend: memory() });
      await instance.cache.set('a', new Date(5));
      expect(await instance.cache.get('a')).toEqual(new Date(5));
    });

    it('is the memory of the application in unit tests', async () => {
      class Root {}
      const module = { module: Root, imports: [RedisLockTestingModule] };
      const app = await NestFactory.createApplicationContext(module, { logger: false });
      const cache = app.get(CacheService);
      let loads = 0;
      const load = async () => ++loads;
      expect([await cache.getOrSet('a', load), await cache.getOrSet('a', load)]).toEqual([1, 1]);
      await app.close();
    });
  });

  describe('options', () => {
    const refusals: [string, Record<string, unknown>, RegExp][] = [
      ['an unknown one', { ttl: 5 }, /Unknown option "cache\.ttl"; give any of .*redis, .*defaults/],
      ['an unknown default', { defaults: { tll: 5 } }, /Unknown cache option "tll"; give any of ttl/],
      [
        'a duration that is none',
        { commandTimeout: '5 minutes' },
        /"cache\.commandTimeout" is "5 minutes"; give milli/,
      ],
      ['a first level of no entries', { l1: { max: 0 } }, /"cache\.l1\.max" is 0; give a whole number from 1 on/],
      ['a bus that is none', { l1: { bus: 'amqp' } }, /"cache\.l1\.bus" is "amqp"; give 'pubsub' or 'tracking'/],
      ['a breaker of no errors', { breaker: { errors: 0 } }, /"cache\.breaker\.errors" is 0/],
    ];
    it.each(refusals)('refuse %s', async (_, cache, message) => {
      const options = { redis: server.url, cache };
      await expect(openCache(options, { heard: false })).rejects.toThrow(message);
    });

    it('without a cache, its use says what to do', async () => {
      await using instance = await openCache({ redis: server.url, cache: false }, { heard: false });
      await expect(instance.cache.getOrSet('a', async () => 1)).rejects.toThrow(CacheConfigError);
      await expect(instance.cache.get('a')).rejects.toThrow(/do not set "cache: false"/);
      expect(await instance.app.get(LockService).isLocked('a')).toBe(false);
    });

    it('accept the module factory', async () => {
      class Root {}
      const imports = [RedisLockModule.forRootAsync({ useFactory: () => ({ redis: server.url, cache: {} }) })];
      const app = await NestFactory.createApplicationContext({ module: Root, imports }, { logger: false });
      expect(await app.get(CacheService).getOrSet('factory', async () => 7)).toBe(7);
      await app.close();
    });
  });

  describe('the end of the application', () => {
    it('lets who holds a lock finish what it does to the cache', async () => {
      const { app, cache } = await openCache({ redis: server.url });
      await cache.set('order', 'old');
      const held = new Gate();
      const ending = new Gate();
      const work = app.get(LockService).withLock('order', async () => {
        held.open();
        await ending.opened;
        await cache.invalidate('order', { onRedisError: 'throw' });
      });
      await held.opened;
      const closed = app.close();
      ending.open();
      await work;
      await closed;
      await using other = await openCache({ redis: server.url });
      expect(await other.cache.get('order')).toBeUndefined();
    });

    it('answers what comes after it from the loader, and names an invalidation that it gives up', async () => {
      const { app, cache, logger } = await openCache({ redis: server.url });
      await app.close();
      expect(await cache.getOrSet('after', async () => 1)).toBe(1);
      await cache.invalidate('after');
      expect(logger.matching(/Redis has not confirmed the invalidation of "after", which is given up/)).toHaveLength(1);
    });

    it('opens no connection for messages in an application that only locks', async () => {
      await using opened = await openedSince(server.url);
      await using instance = await openCache({ redis: server.url }, { heard: false });
      await instance.app.get(LockService).withLock('a', async () => {});
      expect(await opened.count()).toBe(1);
      await instance.cache.get('a');
      await eventually(async () => (await opened.count()) === 2);
    });

    it('closes the connections of the cache', async () => {
      await using opened = await openedSince(server.url);
      const instance = await openCache({ redis: server.url });
      await instance.cache.getOrSet('a', async () => 1);
      expect(await opened.count()).toBe(2);
      await instance.close();
      await eventually(async () => (await opened.count()) === 0);
    });
  });
});
