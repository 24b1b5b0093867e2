import 'reflect-metadata';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { Controller, Get, type INestApplication, Inject, Injectable, Param, Scope } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { Redis } from 'ioredis';
import {
  type BusyCall,
  type LimitedCall,
  memory,
  PermitLostError,
  PrimitiveConfigError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  RateLimit,
  RateLimiter,
  RateLimitExceededError,
  type RateLimitOptions,
  RedisLockModule,
  Semaphore,
  SemaphoreService,
  SemaphoreTimeoutError,
} from 'nest-redis-lock';
import { RedisLockTestingModule, wire } from 'nest-redis-lock/testing';
import { firstValueFrom, lastValueFrom, Observable, of, toArray } from 'rxjs';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { startLockApp } from '../../support/lock-app.js';
import { server, startRedis } from '../../support/one-redis.js';
import { RecordingLogger } from '../../support/recording-logger.js';

describe('a semaphore', () => {
  const gates = new Map<string, Gate>();
  let running = 0;

  function gateOf(id: string): Gate {
    let gate = gates.get(id);
    if (!gate) gates.set(id, (gate = new Gate()));
    return gate;
  }

  async function work(id: string): Promise<string> {
    running += 1;
    await gateOf(id).opened;
    running -= 1;
    return id;
  }

  @Injectable()
  class Reports {
    constructor(@Inject(SemaphoreService) readonly semaphores: SemaphoreService) {}

    @Semaphore('report:<0>', { permits: 2, wait: '30s' })
    make(id: string): Promise<string> {
      return work(id);
    }

    @Semaphore('report:<0.id>', { permits: 1, wait: 0, onBusy: 'skip' })
    async skipped(report: { id: string }): Promise<string | undefined> {
      return work(report.id);
    }

    @Semaphore((id: string) => `report:${id}`, { permits: 1, wait: 0, onBusy: (busy) => describeBusy(busy) })
    replaced(id: string): Promise<unknown> {
      return work(id);
    }

    @Semaphore(() => '', { permits: 1 })
    async unnamed(): Promise<void> {}

    @Semaphore('stream:<0>', { permits: 1, wait: 0 })
    stream(id: string): Observable<string> {
      return new Observable((subscriber) => {
        subscriber.next('began');
        void gateOf(id).opened.then(() => subscriber.complete());
      });
    }

    @Semaphore('node:<0>', { permits: 1, wait: 0 })
    async nodeStream(id: string): Promise<Readable> {
      return Readable.from(
        (async function* () {
          yield 'began';
          await gateOf(id).opened;
        })(),
      );
    }

    @Semaphore('current:<0>', { permits: 5, count: 2 })
    async current(_id: string): Promise<readonly unknown[]> {
      const permit = this.semaphores.current();
      return [permit?.key, permit?.count, permit?.held];
    }
  }

  @Controller({ path: 'reports', scope: Scope.REQUEST })
  class ReportController {
    @Get(':id')
    @Semaphore('http:<0>', { permits: 1, wait: 0 })
    get(@Param('id') id: string): Promise<string> {
      return work(id);
    }
  }

  function describeBusy({ keys, args, error }: BusyCall<SemaphoreTimeoutError>): unknown {
    return [keys, args, error.permits];
  }

  describe('@Semaphore', () => {
    let app: INestApplication;
    let reports: Reports;
    let semaphores: SemaphoreService;

    beforeAll(async () => {
      const module = Test.createTestingModule({
        imports: [RedisLockTestingModule.forRoot()],
        providers: [Reports],
        controllers: [ReportController],
      });
      app = (await module.compile()).createNestApplication({ logger: false });
      await app.listen(0, '127.0.0.1');
      [reports, semaphores] = [app.get(Reports), app.get(SemaphoreService)];
    });
    afterAll(() => app.close());

    it('lets at most `permits` calls of a key run, and the next one when one has ended', async () => {
      const calls = [1, 2, 3].map(() => reports.make('a'));
      await eventually(() => running === 2);
      expect(await semaphores.available('report:a')).toBe(0);
      await expect(semaphores.acquire('report:a', { permits: 2, wait: 0 })).rejects.toThrow(SemaphoreTimeoutError);
      gateOf('a').open();
      expect(await Promise.all(calls)).toEqual(['a', 'a', 'a']);
      expect(await semaphores.available('report:a')).toBe(2);
    });

    it('skips a call, or lets a function answer it', async () => {
      const first = reports.skipped({ id: 'b' });
      await eventually(() => running === 1);
      expect(await reports.skipped({ id: 'b' })).toBeUndefined();
      expect(await reports.replaced('b')).toEqual([['report:b'], ['b'], 1]);
      gateOf('b').open();
      expect(await first).toBe('b');
    });

    it('keeps the permit until an Observable has completed or its reader has left', async () => {
      const read = firstValueFrom(reports.stream('c').pipe(toArray()));
      await eventually(async () => (await semaphores.available('stream:c')) === 0);
      await expect(firstValueFrom(reports.stream('c'))).rejects.toThrow(SemaphoreTimeoutError);
      gateOf('c').open();
      expect(await read).toEqual(['began']);
      await eventually(async () => (await semaphores.available('stream:c')) === 1);
      expect(await firstValueFrom(reports.stream('d'))).toBe('began');
      await eventually(async () => (await semaphores.available('stream:d')) === 1);
    });

    it('keeps the permit until a Node.js stream has ended', async () => {
      const stream = await reports.nodeStream('e');
      await expect(reports.nodeStream('e')).rejects.toThrow(SemaphoreTimeoutError);
      gateOf('e').open();
      expect(await text(stream)).toBe('began');
      await eventually(async () => (await semaphores.available('node:e')) === 1);
    });

    it('makes the permit the current one', async () => {
      expect(await reports.current('f')).toEqual(['current:f', 2, true]);
    });

    it('answers HTTP requests without a permit with 429 and Retry-After, also in request scope', async () => {
      const url = `${await app.getUrl()}/reports/g`;
      const first = fetch(url);
      await eventually(() => running === 1);
      const second = await fetch(url);
      expect(second.status).toBe(429);
      expect(second.headers.get('retry-after')).toBe('1');
      expect(await second.json()).toEqual({
        statusCode: 429,
        error: 'Too Many Requests',
        message: 'Too many requests run at the same time. Try again later.',
        code: 'SEMAPHORE_TIMEOUT',
      });
      gateOf('g').open();
      expect((await first).status).toBe(200);
    });

    it('refuses keys that name the wrong thing', async () => {
      await expect(reports.make(undefined as never)).rejects.toThrow(PrimitiveKeyError);
      await expect(reports.unnamed()).rejects.toThrow(PrimitiveKeyError);
    });

    it('refuses wrong options where it is written', () => {
      expect(() => Semaphore('a', undefined as never)).toThrow(PrimitiveConfigError);
      expect(() => Semaphore('a', { permits: 0 })).toThrow('Option "permits" is 0');
      expect(() => Semaphore('a', { permits: 1, onBusy: 'wait' as never })).toThrow('Option "onBusy" is "wait"');
      expect(() => Semaphore('a:<0.*.b>', { permits: 1 })).toThrow('yields a key for each element');
    });

    it('works on instances made with new once they are wired, and fails closed before', async () => {
      const bare = new Reports(semaphores);
      await expect(bare.make('h')).rejects.toThrow(PrimitiveNotWiredError);
      gateOf('h').open();
      expect(await wire(new Reports(semaphores)).make('h')).toBe('h');
    });
  });

  describe('SemaphoreService at the end of the application', () => {
    it('refuses waiters at once, lets holders finish, and takes permits away after `shutdownGrace`', async () => {
      const imports = [RedisLockTestingModule.forRoot({ shutdownGrace: 300 })];
      const module = await Test.createTestingModule({ imports }).setLogger(new RecordingLogger()).compile();
      await module.init();
      const semaphores = module.get(SemaphoreService);
      const quick = await semaphores.acquire('end', { permits: 2 });
      const slow = await semaphores.acquire('end', { permits: 2 });
      const { signal } = slow;
      const waiting = semaphores.acquire('end', { permits: 2, wait: '30s' });
      waiting.catch(() => {});
      const closing = module.close();
      await expect(waiting).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
      await expect(semaphores.acquire('end', { permits: 2 })).rejects.toThrow('the application is shutting down');
      expect(quick.held).toBe(true);
      await quick.release();
      await closing;
      expect(signal.reason).toBeInstanceOf(PermitLostError);
      expect(signal.reason).toMatchObject({ reason: 'shutdown', code: 'PERMIT_LOST', statusCode: 500 });
      expect(semaphores.closed).toBe(true);
    });
  });
});

describe('a rate limit', () => {
  const TWO = { limit: 2, per: '1h' } as const;

  @Injectable()
  class Mailer {
    sent = 0;

    @RateLimit('user:<0>', TWO)
    async send(_user: string): Promise<number> {
      return (this.sent += 1);
    }

    @RateLimit('user:<0>', { ...TWO, onLimit: 'skip' })
    async sendIfAllowed(_user: string): Promise<number | undefined> {
      return (this.sent += 1);
    }

    @RateLimit((user: string) => `user:${user}`, { ...TWO, onLimit: (call: LimitedCall) => call })
    async sendOrSay(_user: string): Promise<unknown> {
      return (this.sent += 1);
    }

    @RateLimit('stream:<0>', { limit: 1, per: '1h' })
    stream(_user: string): Observable<number> {
      return new Observable((subscriber) => {
        this.sent += 1;
        subscriber.next(1);
        subscriber.next(2);
        subscriber.complete();
      });
    }

    @RateLimit('undeclared', { limit: 1, per: '1h' })
    async undeclared(): Promise<unknown> {
      return of(1);
    }

    @RateLimit('skipped:<0>', { limit: 1, per: '1h', onLimit: 'skip' })
    skipped(_user: string): Observable<number> {
      return of(1, 2);
    }

    @RateLimit('said:<0>', { limit: 1, per: '1h', onLimit: ({ key }) => key })
    said(_user: string): Observable<unknown> {
      return of(1, 2);
    }
  }

  async function boot(useFactory?: () => Mailer) {
    class Root {}
    const provider = useFactory ? { provide: Mailer, useFactory } : Mailer;
    const module = { module: Root, imports: [RedisLockModule.forRoot({ backend: memory() })], providers: [provider] };
    const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
    return { mailer: app.get(Mailer), limiter: app.get(RateLimiter), [Symbol.asyncDispose]: () => app.close() };
  }

  const all = <T>(stream: Observable<T>) => lastValueFrom(stream.pipe(toArray()));

  describe('a method with a rate limit', () => {
    it.each([
      ['Nest constructs', undefined],
      ['a factory makes', () => new Mailer()],
    ])('of an instance that %s runs as often as the limit allows', async (_how, factory) => {
      await using app = await boot(factory);
      const { mailer } = app;
      expect([await mailer.send('a'), await mailer.send('a'), await mailer.send('b')]).toEqual([1, 2, 3]);
      const refused = mailer.send('a');
      await expect(refused).rejects.toThrow(RateLimitExceededError);
      await expect(refused).rejects.toMatchObject({ statusCode: 429, keys: ['user:a'] });
      expect(mailer.sent).toBe(3);
    });

    it('shares the count of its key and limit with others, and with the service', async () => {
      await using app = await boot();
      await app.mailer.send('a');
      expect(await app.limiter.take('user:a', TWO)).toMatchObject({ allowed: true, remaining: 0 });
      expect(await app.mailer.sendIfAllowed('a')).toBeUndefined();
      expect(app.mailer.sent).toBe(1);
    });

    it('answers by a function beyond the limit', async () => {
      await using app = await boot();
      await app.limiter.take('user:a', { ...TWO, cost: 2 });
      expect(await app.mailer.sendOrSay('a')).toMatchObject({
        key: 'user:a',
        args: ['a'],
        error: { code: 'RATE_LIMIT_EXCEEDED', limit: 2 },
      });
    });

    it('counts an Observable when it is subscribed to', async () => {
      await using app = await boot();
      const { mailer } = app;
      const streams = [mailer.stream('a'), mailer.stream('a')] as const;
      expect(mailer.sent).toBe(0);
      expect(await all(streams[0])).toEqual([1, 2]);
      await expect(all(streams[1])).rejects.toThrow(RateLimitExceededError);
      expect(mailer.sent).toBe(1);
      expect([await all(mailer.skipped('a')), await all(mailer.skipped('a'))]).toEqual([[1, 2], []]);
      expect([await all(mailer.said('a')), await all(mailer.said('a'))]).toEqual([[1, 2], ['said:a']]);
    });

    it('refuses an Observable that it returns without being declared to', async () => {
      await using app = await boot();
      await expect(app.mailer.undeclared()).rejects.toThrow(
        /^Mailer\.undeclared returned an Observable without being declared to: its caller would get a promise of it/,
      );
    });

    it('does not run without a valid key', async () => {
      await using app = await boot();
      await expect(app.mailer.send('')).rejects.toThrow(PrimitiveKeyError);
      await expect(app.mailer.send(undefined as never)).rejects.toThrow(PrimitiveKeyError);
      await expect(app.limiter.take('', TWO)).rejects.toThrow(PrimitiveKeyError);
      expect(app.mailer.sent).toBe(0);
    });

    it('does not run on an instance without the service, or with a mock that decides nothing', async () => {
      await expect(new Mailer().send('a')).rejects.toThrow(PrimitiveNotWiredError);
      const mocked = wire(new Mailer(), { rateLimits: { take: async () => {} } as never });
      await expect(mocked.send('a')).rejects.toThrow(PrimitiveNotWiredError);
    });

    it('works in a unit test', async () => {
      const mailer = wire(new Mailer());
      await mailer.send('a');
      await mailer.send('a');
      await expect(mailer.send('a')).rejects.toThrow(RateLimitExceededError);
    });
  });

  it('does not take of a limit after the end of the application', async () => {
    const app = await startLockApp({ backend: memory() });
    const limiter = app.app.get(RateLimiter);
    await app.close();
    await expect(limiter.take('key', TWO)).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND', statusCode: 503 });
  });

  it.each<[what: string, options: object, message: string]>([
    ['no limit', { per: '1s' }, 'Option "limit" is undefined; give how many units come back in "per"'],
    ['no time', { limit: 1 }, 'Option "per" is undefined; give the time'],
    ['an unknown option', { ...TWO, window: 1 }, 'Unknown rate limit option "window"; give any of limit, per, burst'],
    ['a duration that is none', { limit: 1, per: '1 hour' }, 'Option "per" is "1 hour"; give milliseconds'],
    ['half a unit', { limit: 0.5, per: '1h' }, 'Option "limit" is 0.5; give a whole number from 1 on'],
    ['no options', undefined as never, 'Option "options" is undefined; give a limit'],
    ['no burst', { ...TWO, burst: 0 }, 'Option "burst" is 0; give a whole number from 1 on'],
    ['a limit that is no number', { limit: Number.NaN, per: '1h' }, 'Option "limit" is NaN; give a whole number'],
    ['no limit at all', { limit: Infinity, per: '1h' }, 'Option "limit" is Infinity; give a whole number'],
    ['a time without end', { limit: 1, per: Infinity }, 'Option "per" is Infinity; give milliseconds'],
    ['no time at all', { limit: 1, per: 0 }, 'Option "per" is 0; give milliseconds'],
    ['a cost of nothing', { ...TWO, cost: 0 }, 'Option "cost" is 0; give a whole number from 1 on'],
    ['a cost that never fits', { ...TWO, cost: 3 }, 'Option "cost" is 3; give at most the burst (2)'],
    ['a share that never fits', { ...TWO, localShare: 3 }, 'Option "localShare" is 3; give at most the burst (2)'],
    [
      'more than a unit a µs',
      { limit: 1_001, per: 1 },
      'Option "limit" is 1001; give at most one unit for each microsecond',
    ],
    [
      'a time too long',
      { limit: 1, per: '3650d', burst: 11 },
      'Option "per" is 315360000000; give less than 100 years',
    ],
    ['both forms', { ...TWO, limits: [TWO] }, 'Options "limits" and "limit", "per" or "burst" exclude each other'],
    ['an empty list', { limits: [] }, 'give a list of one to 8 limits'],
    ['a limit that is none', { limits: [{ limit: 1 }] }, 'Option "per" is undefined'],
    [
      'another word for failure',
      { ...TWO, onFailure: 'throw' },
      `Option "onFailure" is "throw"; give 'open', 'closed' or 'local'`,
    ],
    [
      'another word for the limit',
      { ...TWO, onLimit: 'wait' },
      `Option "onLimit" is "wait"; give 'throw', 'skip' or a function`,
    ],
  ])('%s is refused where the method is decorated', (_what, options, message) => {
    expect(() => RateLimit('key', options as RateLimitOptions)).toThrow(PrimitiveConfigError);
    expect(() => RateLimit('key', options as RateLimitOptions)).toThrow(message);
  });
});

describe('ThrottlerGuard of @nestjs/throttler, in a process on Express and one on Fastify', () => {
  startRedis();

  let children: Child[] = [];
  let urls: string[];

  beforeAll(async () => {
    children = ['express', 'fastify'].map((adapter) =>
      Child.start('throttled-server.mjs', [String(server.port), adapter]),
    );
    urls = await Promise.all(children.map((child) => child.says<string>('url')));
  });
  beforeEach(async () => {
    const admin = new Redis(server.url);
    await admin.flushall();
    admin.disconnect();
  });
  afterAll(() => Promise.all(children.map((child) => child.kill())));

  const get = (process: 0 | 1, path: string) => fetch(`${urls[process]}/${path}`);

  it('counts the requests to all processes together, and blocks those beyond the limit', async () => {
    const first = await get(0, 'orders');
    expect(first.status).toBe(200);
    expect(first.headers.get('x-ratelimit-limit')).toBe('3');
    expect(first.headers.get('x-ratelimit-remaining')).toBe('2');
    expect(first.headers.get('x-ratelimit-reset')).toBe('60');
    expect((await get(1, 'orders')).headers.get('x-ratelimit-remaining')).toBe('1');
    expect((await get(0, 'orders')).headers.get('x-ratelimit-remaining')).toBe('0');
    for (const process of [1, 0] as const) {
      const refused = await get(process, 'orders');
      expect(refused.status).toBe(429);
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(180);
      expect(Number(refused.headers.get('retry-after'))).toBeLessThanOrEqual(300);
    }
    expect((await get(1, 'orders/unlimited')).status).toBe(200);
  });

  it('counts each route on its own, by the limit that its decorator gives', async () => {
    expect((await get(0, 'orders/unblocked')).status).toBe(200);
    const refused = await get(1, 'orders/unblocked');
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeLessThanOrEqual(60);
    expect((await get(1, 'orders')).status).toBe(200);
  });
});
