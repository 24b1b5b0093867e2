import 'reflect-metadata';
import { jest } from '@jest/globals';
import {
  type ArgumentsHost,
  type CallHandler,
  Catch,
  ConflictException,
  Controller,
  type ExceptionFilter,
  Get,
  HttpException,
  type INestApplication,
  Inject,
  Injectable,
  type LoggerService,
  Module,
  Param,
  type Type,
  UseGuards,
} from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_INTERCEPTOR, HttpAdapterHost, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import {
  DistributedLock,
  LockService,
  LockTimeoutError,
  memory,
  PrimitiveConfigError,
  RateLimit,
  RateLimitGuard,
  RateLimitPolicy,
  type RateLimitPolicyOptions,
  RedisLockModule,
  type RedisLockModuleOptions,
  SkipRateLimit,
} from 'nest-redis-lock';
import { catchError, of } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';
import { patient } from '../../support/lock-app.js';

describe('a lock', () => {
  @Injectable()
  class Work {
    @DistributedLock('work:<0>', { wait: 0 })
    async run(_id: string): Promise<string> {
      return 'done';
    }
  }

  @Controller()
  class WorkController {
    constructor(
      @Inject(Work) private readonly work: Work,
      @Inject(LockService) private readonly locks: LockService,
    ) {}

    @Get('service/:id')
    service(@Param('id') id: string): Promise<string> {
      return this.work.run(id);
    }

    @DistributedLock('work:<0>', { wait: 0 })
    @Get('lock-above/:id')
    async lockAbove(@Param('id') id: string): Promise<string> {
      return id;
    }

    @Get('lock-below/:id')
    @DistributedLock('work:<0>', { wait: 0 })
    async lockBelow(@Param('id') id: string): Promise<string> {
      return id;
    }

    @Get('key')
    @DistributedLock('work:<0>')
    async key(_missing: string): Promise<void> {}

    @Get('lost')
    lost(): Promise<void> {
      return this.locks.withLock('work:lost', { ttl: 100, renew: false }, async ({ signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
      });
    }

    @Get('business')
    @DistributedLock('business')
    async business(): Promise<void> {
      throw new ConflictException('out of stock');
    }
  }

  const FALLBACK = {
    intercept: (_: unknown, next: CallHandler) => next.handle().pipe(catchError(() => of('fallback'))),
  };

  /** What many applications have: one filter for everything. */
  @Catch()
  @Injectable()
  class CatchAll implements ExceptionFilter {
    constructor(@Inject(HttpAdapterHost) private readonly host: HttpAdapterHost) {}

    catch(exception: unknown, host: ArgumentsHost): void {
      const status = exception instanceof HttpException ? exception.getStatus() : 500;
      this.host.httpAdapter.reply(host.switchToHttp().getResponse(), { caught: status }, status);
    }
  }

  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  describe.each([
    ['Express', () => new ExpressAdapter()],
    ['Fastify', () => new FastifyAdapter()],
  ] as const)('over %s', (_name, adapter) => {
    let app: INestApplication;
    let locks: LockService;
    let logger: RecordingLogger;
    let base: string;

    async function start(filter: 'none' | 'global' | 'provider' | 'fallback'): Promise<void> {
      @Module({
        imports: [RedisLockModule.forRoot(patient({ redis: server.url, commandTimeout: 3_000 }))],
        controllers: [WorkController],
        providers: [
          Work,
          ...(filter === 'provider' ? [{ provide: APP_FILTER, useClass: CatchAll }] : []),
          ...(filter === 'fallback' ? [{ provide: APP_INTERCEPTOR, useValue: FALLBACK }] : []),
        ],
      })
      class App {}
      logger = new RecordingLogger();
      app = await NestFactory.create(App, adapter(), { logger, abortOnError: false });
      if (filter === 'global') app.useGlobalFilters(new CatchAll(app.get(HttpAdapterHost)));
      await app.listen(0, '127.0.0.1');
      base = await app.getUrl();
      locks = app.get(LockService);
    }

    afterEach(async () => {
      server.process.resume();
      await app.close();
    });

    it.each(['service', 'lock-above', 'lock-below'])('%s answers when free, and 423 when busy', async (path) => {
      await start('none');
      expect((await fetch(`${base}/${path}/1`)).status).toBe(200);
      const held = await locks.acquire('work:1', { ttl: 7_500 });
      const response = await fetch(`${base}/${path}/1`);
      expect(response.status).toBe(423);
      expect(response.headers.get('retry-after')).toBe('1');
      const text = await response.text();
      expect(JSON.parse(text)).toEqual({
        statusCode: 423,
        error: 'Locked',
        message: expect.any(String),
        code: 'LOCK_TIMEOUT',
      });
      expect(text).not.toContain('work:1');
      expect(text).not.toContain(held.owner);
      await held.release();
      expect(logger.lines.filter(({ level }) => level === 'error')).toEqual([]);
    });

    it.each([
      [{ waited: 0, remaining: 30_000 }, '1'],
      [{ waited: 5_020, remaining: 30_000 }, '5'],
      [{ waited: 5_020, remaining: 2_900 }, '3'],
      [{ waited: 90_000, remaining: Infinity }, '30'],
      [{ waited: 90_000, remaining: 0 }, '1'],
    ])('after %p it says to come back in %s s', async (details, seconds) => {
      await start('none');
      const busy = new LockTimeoutError(['work:2'], details);
      const acquire = jest.spyOn(locks, 'withLock').mockRejectedValue(busy);
      expect((await fetch(`${base}/lock-above/2`)).headers.get('retry-after')).toBe(seconds);
      acquire.mockRestore();
    });

    it('has no Retry-After where an interceptor outside answers in the place of a busy lock', async () => {
      await start('fallback');
      await locks.withLock('work:1', async () => {
        const response = await fetch(`${base}/lock-above/1`);
        expect([response.status, await response.text()]).toEqual([200, 'fallback']);
        expect(response.headers.get('retry-after')).toBeNull();
      });
    });

    it('answers 503 while Redis is down, and logs it once', async () => {
      await start('none');
      server.process.pause();
      const response = await fetch(`${base}/service/3`);
      expect(response.status).toBe(503);
      expect(response.headers.get('retry-after')).toBeNull();
      expect(await response.json()).toMatchObject({
        statusCode: 503,
        error: 'Service Unavailable',
        code: 'LOCK_BACKEND',
      });
      expect(logger.matching(/acquire of "work:3" failed/)).toHaveLength(1);
    });

    it('answers 500 for a lost lock and for a key that cannot be, and logs each once', async () => {
      await start('none');
      const lost = await fetch(`${base}/lost`);
      expect(lost.status).toBe(500);
      expect(await lost.json()).toMatchObject({ statusCode: 500, code: 'LOCK_LOST' });
      expect(logger.matching(/"work:lost" lost \(expired\)/)).toHaveLength(1);
      const key = await fetch(`${base}/key`);
      expect(key.status).toBe(500);
      expect(await key.json()).toMatchObject({ statusCode: 500, code: 'LOCK_KEY', message: 'Internal server error' });
      expect(logger.matching(/<0> is undefined/)).toHaveLength(1);
    });

    it('leaves errors of the method as they are', async () => {
      await start('none');
      const response = await fetch(`${base}/business`);
      expect(response.status).toBe(409);
      expect(await response.json()).toMatchObject({ message: 'out of stock' });
    });

    it.each(['global', 'provider'] as const)('lets a catch-all filter (%s) answer, with our status', async (filter) => {
      await start(filter);
      const held = await locks.acquire('work:4', { ttl: 5_000 });
      const busy = await fetch(`${base}/service/4`);
      expect(busy.status).toBe(423);
      expect(await busy.json()).toEqual({ caught: 423 });
      expect(busy.headers.get('retry-after')).toBe('1');
      await held.release();
      const lost = await fetch(`${base}/lost`);
      expect(await lost.json()).toEqual({ caught: 500 });
      expect(logger.matching(/"work:lost" lost/)).toHaveLength(1);
    });

    it('is not let through by a busy lock, however many ask', async () => {
      await start('none');
      const gate = new Gate();
      const held = locks.withLock('work:5', () => gate.opened);
      await eventually(() => locks.isLocked('work:5'));
      const statuses = await Promise.all(
        Array.from({ length: 20 }, async () => (await fetch(`${base}/service/5`)).status),
      );
      expect(new Set(statuses)).toEqual(new Set([423]));
      gate.open();
      await held;
    });
  });
});

describe('a rate limit', () => {
  @Controller('orders')
  class OrderController {
    @Get()
    list(): string {
      return 'orders';
    }

    @Get('searched')
    @RateLimitPolicy({
      limits: [
        { limit: 1, per: '1h' },
        { limit: 50, per: '1d', burst: 5 },
      ],
      name: 'search',
    })
    search(): string {
      return 'found';
    }

    @Get('by-key')
    @RateLimitPolicy({ limit: 1, per: '1h', key: 'header:X-Api-Key' })
    byKey(): string {
      return 'yours';
    }

    @Get('by-user')
    @RateLimitPolicy({ limit: 1, per: '1h', key: 'user:id', headers: false })
    byUser(): string {
      return 'yours';
    }

    @Get('by-function')
    @RateLimitPolicy({
      limit: 1,
      per: '1h',
      key: ({ headers }) => headers['x-team'] as string,
      skip: (context) => context.switchToHttp().getRequest<Request>().url.includes('internal'),
    })
    byFunction(): string {
      return 'ours';
    }

    @Get('health')
    @SkipRateLimit()
    health(): string {
      return 'fine';
    }

    @Get('decorated')
    @SkipRateLimit()
    @RateLimit('decorated', { limit: 1, per: '1h' })
    async decorated(): Promise<string> {
      return 'once';
    }
  }

  @Controller('reports')
  @UseGuards(RateLimitGuard)
  @RateLimitPolicy({ limit: 1, per: '1h' })
  class ReportController {
    @Get('a')
    a(): string {
      return 'a';
    }

    @Get('b')
    b(): string {
      return 'b';
    }
  }

  @Controller('free')
  @UseGuards(RateLimitGuard)
  class FreeController {
    @Get()
    get(): string {
      return 'free';
    }
  }

  /** As authentication does, before the guards. */
  function authenticated(request: { headers: Record<string, string>; user?: object }): void {
    if (request.headers['x-user']) request.user = { id: Number(request.headers['x-user']) };
  }

  describe.each([
    ['Express', () => new ExpressAdapter()],
    ['Fastify', () => new FastifyAdapter()],
  ] as const)('over %s', (name, adapter) => {
    let app: INestApplication | undefined;
    let base: string;

    async function start(
      controllers: Type[],
      policy?: RateLimitPolicyOptions,
      options: RedisLockModuleOptions = { backend: memory() },
      logger: LoggerService | false = false,
    ): Promise<void> {
      const guard = policy && { provide: APP_GUARD, useClass: RateLimitGuard.of(policy) };
      @Module({
        imports: [RedisLockModule.forRoot(patient(options))],
        controllers,
        providers: guard ? [guard] : [],
      })
      class App {}
      app = await NestFactory.create(App, adapter(), { logger, abortOnError: false });
      if (name === 'Express')
        app.use((request: never, _response: unknown, next: () => void) => (authenticated(request), next()));
      else
        (app.getHttpAdapter().getInstance() as FastifyHooks).addHook('onRequest', async (request) =>
          authenticated(request),
        );
      await app.listen(0, '127.0.0.1');
      base = await app.getUrl();
    }

    afterEach(async () => {
      await app?.close();
      app = undefined;
    });

    const get = (path: string, headers: Record<string, string> = {}) => fetch(base + path, { headers });
    const statuses = async (path: string, ...each: Record<string, string>[]) => {
      const found: number[] = [];
      for (const headers of each) found.push((await get(path, headers)).status);
      return found;
    };

    it('the policy of the guard answers 429, with the headers of the draft', async () => {
      await start([OrderController], { limit: 2, per: '90.5s', burst: 2 });
      const first = await get('/orders');
      expect(first.status).toBe(200);
      expect(first.headers.get('ratelimit-policy')).toBe('"default";q=2;w=91');
      expect(first.headers.get('ratelimit')).toBe('"default";r=1;t=46');
      expect(first.headers.get('retry-after')).toBeNull();
      await get('/orders');
      const refused = await get('/orders');
      expect(refused.status).toBe(429);
      expect(await refused.json()).toEqual({
        statusCode: 429,
        error: 'Too Many Requests',
        message: 'Too many requests. Try again later.',
        code: 'RATE_LIMIT_EXCEEDED',
      });
      const wait = Number(refused.headers.get('retry-after'));
      expect(wait).toBeGreaterThan(15);
      expect(wait).toBeLessThanOrEqual(46);
      expect(refused.headers.get('ratelimit')).toBe(`"default";r=0;t=${wait}`);
      expect((await get('/orders/health')).headers.get('ratelimit')).toBeNull();
    });

    it('the policy of a route replaces that of the guard, and tells all of its limits', async () => {
      await start([OrderController], { limit: 100, per: '1h' });
      const first = await get('/orders/searched');
      expect(first.headers.get('ratelimit-policy')).toBe('"search-1";q=1;w=3600, "search-2";q=50;w=86400;nrl-burst=5');
      expect(first.headers.get('ratelimit')).toBe('"search-1";r=0;t=3600, "search-2";r=4;t=1728');
      expect((await get('/orders/searched')).status).toBe(429);
      expect((await get('/orders')).headers.get('ratelimit')).toContain('"default";r=99;');
    });

    it('a header, the user or a function tells clients apart, and without one the address', async () => {
      await start([OrderController], { limit: 100, per: '1h' });
      const keys = [{ 'x-api-key': 'a' }, { 'x-api-key': 'b' }, { 'x-api-key': 'a' }, {}, {}];
      expect(await statuses('/orders/by-key', ...keys)).toEqual([200, 200, 429, 200, 429]);
      const users = [{ 'x-user': '1' }, { 'x-user': '2' }, { 'x-user': '1' }, {}, {}];
      expect(await statuses('/orders/by-user', ...users)).toEqual([200, 200, 429, 200, 429]);
      const byUser = await get('/orders/by-user');
      expect(byUser.headers.get('ratelimit')).toBeNull();
      expect(Number(byUser.headers.get('retry-after'))).toBeGreaterThan(3_000);
      expect(await statuses('/orders/by-function', { 'x-team': 'a' }, { 'x-team': 'a' })).toEqual([200, 429]);
      expect(await statuses('/orders/by-function?internal', { 'x-team': 'a' }, { 'x-team': 'a' })).toEqual([200, 200]);
    });

    it('the policy of a controller counts all of its routes together, and a guard without one counts nothing', async () => {
      await start([ReportController, FreeController]);
      expect((await get('/reports/a')).headers.get('ratelimit-policy')).toBe('"ReportController";q=1;w=3600');
      expect((await get('/reports/b')).status).toBe(429);
      expect((await get('/free')).headers.get('ratelimit')).toBeNull();
    });

    it('a global guard and that of a route count a request once', async () => {
      await start([ReportController], { limit: 100, per: '1h' });
      expect(await statuses('/reports/a', {}, {})).toEqual([200, 429]);
    });

    it('a closed policy without its store answers 503, which the log explains', async () => {
      const logger = new RecordingLogger();
      const policy = { limit: 1, per: '1h', onFailure: 'closed' } as const;
      await start([OrderController], policy, { redis: 'redis://127.0.0.1:1', commandTimeout: 10_000 }, logger);
      expect(await statuses('/orders', {}, {})).toEqual([503, 503]);
      expect(
        logger.matching(/^The take of the rate limit "http:nest-redis-lock:default:ip=127\.0\.0\.1" failed/),
      ).toHaveLength(1);
    });

    it('a decorated handler beyond its limit answers 429 with Retry-After', async () => {
      await start([OrderController]);
      expect((await get('/orders/decorated')).status).toBe(200);
      const refused = await get('/orders/decorated');
      expect(refused.status).toBe(429);
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(3_000);
    });
  });

  it.each<[what: string, options: object, message: string]>([
    ['another kind of key', { key: 'cookie:id' }, `Option "key" is "cookie:id"; give 'ip', 'header:<name>'`],
    ['a name that no header can carry', { name: 'größe' }, 'give a name of printable ASCII characters'],
    ['an unknown option', { ttl: 1 }, 'Unknown rate limit option "ttl"'],
  ])('%s is refused where the policy is given', (_what, options, message) => {
    const policy = { limit: 1, per: '1h', ...options } as RateLimitPolicyOptions;
    for (const give of [() => RateLimitPolicy(policy), () => RateLimitGuard.of(policy)]) {
      expect(give).toThrow(PrimitiveConfigError);
      expect(give).toThrow(message);
    }
  });

  interface FastifyHooks {
    addHook(name: 'onRequest', hook: (request: { headers: Record<string, string> }) => Promise<void>): void;
  }
});
