import 'reflect-metadata';
import { jest } from '@jest/globals';
import {
  Catch,
  ConflictException,
  Controller,
  Get,
  HttpException,
  Inject,
  Injectable,
  Module,
  Param,
  type ArgumentsHost,
  type ExceptionFilter,
  type INestApplication,
} from '@nestjs/common';
import { APP_FILTER, HttpAdapterHost, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { DistributedLock, LockService, LockTimeoutError, RedisLockModule } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';

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
  async key(_missing?: string): Promise<void> {}

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

  async function start(filter: 'none' | 'global' | 'provider'): Promise<void> {
    @Module({
      imports: [RedisLockModule.forRoot({ redis: server.url, commandTimeout: 300 })],
      controllers: [WorkController],
      providers: [Work, ...(filter === 'provider' ? [{ provide: APP_FILTER, useClass: CatchAll }] : [])],
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
