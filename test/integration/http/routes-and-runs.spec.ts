import 'reflect-metadata';
import {
  BadRequestException,
  Body,
  type CallHandler,
  Catch,
  Controller,
  type ExecutionContext,
  Get,
  HostParam,
  type INestApplication,
  InternalServerErrorException,
  type LoggerService,
  Post,
  RequestTimeoutException,
  Req,
  Res,
  UseFilters,
  UseGuards,
  UseInterceptors,
  Version,
  VersioningType,
} from '@nestjs/common';
import { APP_GUARD, BaseExceptionFilter, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import {
  CacheHeadersInterceptor,
  Cached,
  idempotencyKey,
  LockBackendError,
  LockTimeoutError,
  memory,
  RateLimitGuard,
  RateLimitPolicy,
  RedisLockModule,
} from 'nest-redis-lock';
import { map, merge, mergeMap, take, type Observable, from as observableFrom } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';

const once = idempotencyKey({ scope: () => 'user-1' });

let runs = 0;
let late = new Gate();
let end = new Gate();
let isOpen = false;

/** Answers 408 as soon as the gate opens, as a time-out would. */
const timeOut = {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const tooLate = observableFrom(late.opened).pipe(
      mergeMap(() => {
        throw new RequestTimeoutException();
      }),
    );
    return merge(next.handle(), tooLate).pipe(take(1));
  },
};

const amount = {
  transform(body: { amount: unknown }) {
    if (typeof body.amount !== 'number') throw new BadRequestException('amount must be a number');
    return body;
  },
};

const closed = {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    if (!isOpen) throw new BadRequestException('not yet');
    return next.handle();
  },
};

const fails = {
  intercept: (_context: ExecutionContext, next: CallHandler): Observable<unknown> =>
    next.handle().pipe(
      map(() => {
        throw new InternalServerErrorException();
      }),
    ),
};

/** Replaces the method by a function of another name, as decorators of tracing do. */
function traced(_target: object, _name: string, descriptor: PropertyDescriptor): PropertyDescriptor {
  const original = descriptor.value as (...args: unknown[]) => unknown;
  const value = async function (this: unknown, ...args: unknown[]) {
    return original.apply(this, args);
  };
  for (const key of Reflect.getMetadataKeys(original) as string[]) {
    Reflect.defineMetadata(key, Reflect.getMetadata(key, original), value);
  }
  return { ...descriptor, value };
}

async function pay(response: { status(code: number): unknown; header(name: string, value: string): unknown }) {
  runs += 1;
  await end.opened;
  response.status(202);
  response.header('Location', '/charges/1');
  return { charge: runs };
}

function fail(where: string, url: string): void {
  if (url.endsWith(where)) throw new LockBackendError(['account'], `the store of the ${where} is away`);
}

function away(where: string) {
  return {
    canActivate(context: ExecutionContext): boolean {
      fail(where, context.switchToHttp().getRequest<{ url: string }>().url);
      return true;
    },
  };
}

@Catch()
class Forwarding extends BaseExceptionFilter {}

@Controller()
class Shop {
  @Post('above')
  @UseInterceptors(timeOut, once)
  above(@Res({ passthrough: true }) response: Parameters<typeof pay>[0]): Promise<unknown> {
    return pay(response);
  }

  @Post('below')
  @UseInterceptors(once, timeOut)
  below(@Res({ passthrough: true }) response: Parameters<typeof pay>[0]): Promise<unknown> {
    return pay(response);
  }

  @Post('piped')
  @UseInterceptors(once)
  piped(@Body(amount) body: object): object {
    runs += 1;
    return body;
  }

  @Post('refused')
  @UseInterceptors(once, closed)
  refused(): number {
    return ++runs;
  }

  @Post('guarded')
  @UseGuards({ canActivate: () => isOpen })
  @UseInterceptors(once)
  guarded(): number {
    return ++runs;
  }

  @Post('versions')
  @Version(['1', '2'])
  @UseInterceptors(once)
  versions(@Req() request: { headers: Record<string, string> }): object {
    return { version: request.headers['x-version'] };
  }

  @Post('raw')
  @UseInterceptors(once)
  raw(): number {
    return ++runs;
  }

  @Post('itself')
  @traced
  @UseInterceptors(once)
  itself(@Res() response: { send(body: string): unknown }): void {
    runs += 1;
    response.send('itself');
  }

  @Get('login')
  @traced
  @UseGuards(RateLimitGuard)
  @RateLimitPolicy({ limit: 1, per: '1h' })
  login(): string {
    return 'in';
  }

  @Get('search')
  @traced
  @UseGuards(RateLimitGuard)
  @RateLimitPolicy({ limit: 1, per: '1h' })
  search(): string {
    return 'found';
  }

  @Get('cached')
  @UseInterceptors(fails, CacheHeadersInterceptor)
  @Cached('routes-and-runs', { ttl: '1m' })
  async cached(): Promise<object> {
    return { total: 10 };
  }

  @Get('busy')
  @UseGuards({
    canActivate() {
      throw new LockTimeoutError(['account'], { waited: 2_000, remaining: 2_000 });
    },
  })
  busy(): void {}

  @Get(['outage/guard', 'outage/middleware', 'outage/handler'])
  @UseGuards(away('guard'))
  outage(@Req() { url }: { url: string }): void {
    fail('handler', url);
  }

  @Get('outage/filter')
  @UseFilters(Forwarding)
  @UseGuards(away('filter'))
  filtered(): void {}
}

@Controller({ path: 'tenants', host: ':tenant.shop.test' })
class Tenants {
  @Post()
  @UseInterceptors(once)
  order(@HostParam('tenant') tenant: string): object {
    return { tenant };
  }
}

function appController(path: string) {
  @Controller()
  class AppController {
    @Get(path)
    @UseGuards(RateLimitGuard)
    @RateLimitPolicy({ limit: 1, per: '1h' })
    list(): string {
      return path;
    }
  }
  return AppController;
}

describe.each(['express', 'fastify'])('on %s', (platform) => {
  let app: INestApplication;
  let url: string;
  const logger = new RecordingLogger();

  beforeAll(async () => {
    const module = {
      module: class Root {},
      imports: [RedisLockModule.forRoot({ backend: memory(), application: 'shop' })],
      controllers: [Shop, Tenants, appController('orders'), appController('stock')],
      providers: [
        {
          provide: APP_GUARD,
          useClass: RateLimitGuard.of({
            limit: 2,
            per: '1h',
            key: 'header:x-api-key',
            perAddress: 3,
            skip: (context) =>
              context.switchToHttp().getRequest<{ headers: object }>().headers['x-api-key' as never] === undefined,
          }),
        },
      ],
    };
    const adapter = platform === 'express' ? new ExpressAdapter() : new FastifyAdapter();
    app = await NestFactory.create(module, adapter as never, { logger: logger as LoggerService });
    app.use((request: { url: string }, _response: unknown, next: () => void) => {
      fail('middleware', request.url);
      next();
    });
    app.enableVersioning({ type: VersioningType.HEADER, header: 'X-Version' });
    if (platform === 'fastify') {
      const fastify = app.getHttpAdapter().getInstance() as { addContentTypeParser(...args: unknown[]): void };
      fastify.addContentTypeParser('*', (_request: unknown, _payload: unknown, done: (error: null) => void) =>
        done(null),
      );
    }
    await app.listen(0, '127.0.0.1');
    url = (await app.getUrl()).replace('localhost', '127.0.0.1');
  });

  afterAll(() => app.close());

  beforeEach(() => {
    runs = 0;
    [late, end, isOpen] = [new Gate(), new Gate(), false];
  });

  // A request that waits for them would keep the application from closing.
  afterEach(() => {
    late.open();
    end.open();
  });

  const send = (path: string, body: unknown = {}, headers: Record<string, string> = {}) =>
    fetch(`${url}/${path}`, {
      method: 'POST',
      headers: {
        'idempotency-key': `key of ${path}`.replaceAll(' ', '-'),
        'content-type': 'application/json',
        ...headers,
      },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });

  it.each(['above', 'below'])(
    'keeps what the handler returns, where a time-out %s has answered before',
    async (path) => {
      const first = send(path);
      await eventually(() => runs === 1);
      late.open();
      expect((await first).status).toBe(408);
      late = new Gate();
      expect((await send(path)).status).toBe(409);
      end.open();
      await eventually(async () => (await send(path)).status === 202);
      const repeat = await send(path);
      expect(await repeat.json()).toEqual({ charge: 1 });
      expect(repeat.headers.get('location')).toBe('/charges/1');
      expect(runs).toBe(1);
    },
  );

  it('gives the key back where a pipe or an interceptor refused before the handler began', async () => {
    expect((await send('piped', { amount: '5' })).status).toBe(400);
    expect((await send('piped', { amount: 5 })).status).toBe(201);
    expect((await send('piped', { amount: 6 })).status).toBe(422);
    expect((await send('refused')).status).toBe(400);
    isOpen = true;
    expect((await send('refused')).status).toBe(201);
    expect(runs).toBe(2);
  });

  it('keeps nothing of what a guard refused', async () => {
    expect((await send('guarded')).status).toBe(403);
    isOpen = true;
    expect((await send('guarded')).status).toBe(201);
    expect(runs).toBe(1);
  });

  it('tells requests apart by the version and the host that they name', async () => {
    for (const version of ['1', '2']) {
      expect(await (await send('versions', {}, { 'x-version': version })).json()).toEqual({ version });
    }
  });

  it('refuses a body that no parser has read', async () => {
    expect((await send('raw', '<amount>1</amount>', { 'content-type': 'application/xml' })).status).toBe(500);
    expect(runs).toBe(0);
    expect((await send('raw', {})).status).toBe(201);
  });

  it('knows a handler that another decorator has replaced', async () => {
    expect((await send('itself')).status).toBe(500);
    expect(runs).toBe(0);
    expect((await fetch(`${url}/search`)).status).toBe(200);
    expect((await fetch(`${url}/search`)).status).toBe(429);
    expect((await fetch(`${url}/login`)).status).toBe(200);
  });

  it('limits two controllers of one class name each by itself', async () => {
    expect((await fetch(`${url}/orders`)).status).toBe(200);
    expect((await fetch(`${url}/orders`)).status).toBe(429);
    expect((await fetch(`${url}/stock`)).status).toBe(200);
  });

  it('counts headers that a client invents for its address, too', async () => {
    const statuses: number[] = [];
    for (let each = 0; each < 5; each++) {
      statuses.push((await fetch(`${url}/login-of-nobody`, { headers: { 'x-api-key': `invented ${each}` } })).status);
    }
    expect(statuses.filter((status) => status === 429)).toHaveLength(0);
    const counted: number[] = [];
    for (let each = 0; each < 5; each++) {
      counted.push((await fetch(`${url}/cached`, { headers: { 'x-api-key': `invented ${each}` } })).status);
    }
    expect(counted).toEqual([500, 500, 500, 429, 429]);
  });

  it('sends no header of a success with a failure', async () => {
    const { status, headers } = await fetch(`${url}/cached`);
    expect(status).toBe(500);
    for (const name of ['x-cache', 'cache-control']) expect(headers.get(name)).toBeNull();
  });

  it('says when to retry where a guard failed', async () => {
    const { status, headers } = await fetch(`${url}/busy`);
    expect([status, headers.get('retry-after')]).toEqual([423, '2']);
  });

  it.each(['handler', 'guard', 'middleware', 'filter'])('logs an outage in a %s once', async (where) => {
    const { status } = await fetch(`${url}/outage/${where}`);
    expect(status).toBe(503);
    expect(logger.matching(new RegExp(`the store of the ${where} is away`))).toHaveLength(1);
  });
});
