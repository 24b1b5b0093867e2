import 'reflect-metadata';
import { AsyncLocalStorage } from 'node:async_hooks';
import {
  type CallHandler,
  ConflictException,
  Controller,
  type ExecutionContext,
  type INestApplication,
  Inject,
  Injectable,
  type LoggerService,
  type NestInterceptor,
  Post,
  Put,
  RequestTimeoutException,
  Res,
  Scope,
  UseInterceptors,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import {
  Cached,
  DistributedLock,
  Idempotent,
  idempotencyKey,
  IdempotencyService,
  LockService,
  memory,
  RateLimit,
  RedisLockModule,
} from 'nest-redis-lock';
import { defer, from, merge, mergeMap, NEVER, Observable, retry, take } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { patient } from '../../support/lock-app.js';

const once = idempotencyKey({ scope: () => 'user-1' });

let runs = 0;
let late = new Gate();
let end = new Gate();
let error: Error | undefined;
let attempts: unknown[] = [];

function tooLate(): Observable<never> {
  return from(late.opened).pipe(
    mergeMap(() => {
      throw new RequestTimeoutException();
    }),
  );
}

/** Answers 408 as soon as the gate opens. */
const timeOut = {
  intercept: (_context: ExecutionContext, next: CallHandler): Observable<unknown> =>
    merge(next.handle(), tooLate()).pipe(take(1)),
};

/** The same, after which the handler is called once more. */
const secondTry = {
  intercept: (_context: ExecutionContext, next: CallHandler): Observable<unknown> =>
    merge(
      next.handle(),
      defer(() => (runs < 1 ? tooLate() : NEVER)),
    ).pipe(take(1), retry(1)),
};

/** Answers by the response, and lets the handler go on. */
const answering = {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    void late.opened.then(() => context.switchToHttp().getResponse<Answer>().status(503).send('too late'));
    return next.handle();
  },
};

/** Code from before asynchronous contexts: what it calls later has none. */
const withoutContext = {
  intercept: (_context: ExecutionContext, next: CallHandler): Observable<unknown> =>
    new Observable((subscriber) => {
      outside(() => next.handle().subscribe(subscriber));
    }),
};
const outside: (call: () => void) => void = AsyncLocalStorage.snapshot();

interface Answer {
  status(code: number): Answer;
  send(body: string): unknown;
  header(name: string, value: string): unknown;
}

async function pay(): Promise<object> {
  const run = ++runs;
  await end.opened;
  if (error) throw error;
  return { charge: run };
}

abstract class Base {
  @Post('inherited')
  @UseInterceptors(once, timeOut)
  inherited(): Promise<unknown> {
    return pay();
  }
}

@Controller()
class Charges extends Base {
  /** Under an interceptor that the application has made by itself. */
  @Put('by-hand')
  @UseInterceptors(timeOut)
  byHand(): Promise<unknown> {
    return pay();
  }

  @Post('stream')
  @UseInterceptors(once, timeOut)
  stream(): Observable<unknown> {
    return from(pay());
  }

  @Post('stream-later')
  @UseInterceptors(timeOut, once)
  async streamLater(): Promise<Observable<unknown>> {
    return from(pay());
  }

  @Post('answering')
  @UseInterceptors(once, answering)
  answering(): Promise<unknown> {
    return pay();
  }

  @Post('context')
  @UseInterceptors(once, withoutContext)
  context(): Promise<unknown> {
    return pay();
  }

  @Post('retried')
  @UseInterceptors(once, secondTry)
  async retried(): Promise<unknown> {
    const run = ++runs;
    if (run === 1) await end.opened;
    return { charge: run };
  }

  @Post('header')
  @UseInterceptors(timeOut, once)
  async header(@Res({ passthrough: true }) response: Answer & { raw?: object }): Promise<unknown> {
    const body = await pay();
    const raw = (response.raw ?? response) as { appendHeader(name: string, value: string): void };
    raw.appendHeader('X-Charge', '1');
    response.header('X-Kept', 'yes');
    return body;
  }

  @Post('locked')
  @UseInterceptors(once)
  @DistributedLock('account', { wait: 0 })
  locked(): Promise<unknown> {
    return pay();
  }

  @Post('skipped')
  @UseInterceptors(once)
  @DistributedLock('account', { wait: 0, onBusy: () => 'busy' })
  async skipped(): Promise<unknown> {
    return pay();
  }

  @Post('cached')
  @UseInterceptors(once)
  @Cached('charges', { ttl: '1m' })
  cached(): Promise<unknown> {
    return pay();
  }
}

@Controller({ path: 'scoped', scope: Scope.REQUEST })
class ScopedCharges {
  @Post()
  @UseInterceptors(once, timeOut)
  charge(): Promise<unknown> {
    return pay();
  }
}

@Injectable()
class Payments {
  constructor(@Inject(IdempotencyService) private readonly idempotency: IdempotencyService) {}

  @Idempotent('payment:<0>', { fingerprint: '<1>', onRunning: 'throw' })
  @RateLimit('payments', { limit: 1, per: '1h' })
  @DistributedLock('account', { wait: 0, onBusy: 'skip', reentrant: false })
  async pay(_id: string, _amount: number): Promise<object | undefined> {
    return pay();
  }

  @Idempotent('refund:<0>', { fingerprint: '<1>' })
  @DistributedLock('account', { wait: 0, reentrant: false })
  async refund(_id: string, _amount: number): Promise<object> {
    attempts.push(this.idempotency.current()?.attempt);
    return pay();
  }
}

describe.each([
  ['Express', () => new ExpressAdapter(), false],
  ['Fastify and Redis', () => new FastifyAdapter(), true],
  ['Fastify with hooks', fastifyWithHooks, false],
] as const)('the run of a handler on %s', (_name, adapter, isOnRedis) => {
  let redis: RedisServer | undefined;
  let app: INestApplication;
  let url: string;

  beforeAll(async () => {
    redis = isOnRedis ? await startRedisServer() : undefined;
    const store = redis ? { redis: redis.url } : { backend: memory() };
    const module = {
      module: class Root {},
      imports: [RedisLockModule.forRoot(patient({ ...store, application: 'shop' }))],
      controllers: [Charges, ScopedCharges],
      providers: [Payments],
    };
    app = await NestFactory.create(module, adapter() as never, { logger: new RecordingLogger() as LoggerService });
    const ByHand = idempotencyKey({ scope: () => 'user-1', methods: ['PUT'] }) as new (
      service: IdempotencyService,
    ) => NestInterceptor;
    app.useGlobalInterceptors(new ByHand(app.get(IdempotencyService)));
    await app.listen(0, '127.0.0.1');
    url = (await app.getUrl()).replace('localhost', '127.0.0.1');
  });

  afterAll(async () => {
    await app.close();
    await redis?.stop();
  });

  beforeEach(() => {
    runs = 0;
    [late, end, error, attempts] = [new Gate(), new Gate(), undefined, []];
  });

  // A request that waits for them would keep the application from closing.
  afterEach(() => {
    late.open();
    end.open();
  });

  const send = (path: string, amount = 5, key = `key-of-${path}`) =>
    fetch(`${url}/${path}`, {
      method: path === 'by-hand' ? 'PUT' : 'POST',
      headers: { 'idempotency-key': key, 'content-type': 'application/json' },
      body: JSON.stringify({ amount }),
    });

  it.each(['by-hand', 'stream', 'stream-later', 'inherited', 'scoped', 'answering', 'header'])(
    'lasts until the handler has ended, of /%s',
    async (path) => {
      const first = send(path);
      await eventually(() => runs === 1);
      late.open();
      expect((await first).status).toBe(path === 'answering' ? 503 : 408);
      late = new Gate();
      expect((await send(path)).status).toBe(409);
      end.open();
      await eventually(async () => (await send(path)).ok);
      const repeat = await send(path);
      expect(await repeat.json()).toEqual({ charge: 1 });
      expect(runs).toBe(1);
      if (path === 'header') expect([...repeat.headers]).toEqual(expect.arrayContaining([['x-charge', '1']]));
    },
  );

  it('keeps an error of the handler that comes after the answer', async () => {
    const first = send('inherited', 7, 'failing');
    await eventually(() => runs === 1);
    late.open();
    expect((await first).status).toBe(408);
    late = new Gate();
    error = new ConflictException('no money');
    end.open();
    await eventually(async () => (await send('inherited', 7, 'failing')).status === 409);
    expect(await (await send('inherited', 7, 'failing')).json()).toMatchObject({ message: 'no money' });
    expect(runs).toBe(1);
  });

  it('lasts until each call of the handler has ended, and keeps what was answered', async () => {
    const first = send('retried');
    await eventually(() => runs === 1);
    late.open();
    expect(await (await first).json()).toEqual({ charge: 2 });
    expect((await send('retried')).status).toBe(409);
    end.open();
    await eventually(async () => (await send('retried')).status === 201);
    expect(await (await send('retried')).json()).toEqual({ charge: 2 });
  });

  it('counts as begun where it cannot be known', async () => {
    end.open();
    expect((await send('context')).status).toBe(201);
    expect(await (await send('context')).json()).toEqual({ charge: 1 });
  });

  it('gives the key back where a decorator of the handler refused or skipped the call', async () => {
    end.open();
    const replayed = async (path: string, amount?: number) => {
      const { status, headers } = await send(path, amount);
      return [status, headers.get('idempotent-replayed')];
    };
    await app.get(LockService).withLock('account', async () => {
      expect(await replayed('locked')).toEqual([423, null]);
      expect(await replayed('skipped')).toEqual([201, null]);
      expect(await replayed('skipped')).toEqual([201, null]);
    });
    expect(await replayed('locked', 6)).toEqual([201, null]);
    expect(await replayed('locked', 6)).toEqual([201, 'true']);
    expect(await replayed('skipped', 6)).toEqual([201, null]);
    expect(await replayed('skipped', 6)).toEqual([201, 'true']);
  });

  it('keeps a cached value, which stands for the handler', async () => {
    end.open();
    const other = { method: 'POST', headers: { 'idempotency-key': 'other' } };
    expect((await fetch(`${url}/cached`, other)).status).toBe(201);
    expect((await send('cached')).headers.get('idempotent-replayed')).toBeNull();
    expect((await send('cached')).headers.get('idempotent-replayed')).toBe('true');
    expect((await send('cached', 6)).status).toBe(422);
    expect(runs).toBe(1);
  });

  it('gives the key of an idempotent method back where a decorator below refused or skipped the call', async () => {
    end.open();
    const payments = app.get(Payments);
    await app.get(LockService).withLock('account', async () => {
      await expect(payments.refund('1', 5)).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
      expect(await payments.pay('1', 5)).toBeUndefined();
    });
    await expect(payments.pay('1', 6)).rejects.toMatchObject({ code: 'RATE_LIMIT_EXCEEDED' });
    expect(await payments.refund('1', 6)).toEqual({ charge: 1 });
    expect(await payments.refund('1', 6)).toEqual({ charge: 1 });
    await expect(payments.refund('1', 7)).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
  });

  it('still counts an earlier attempt, which may have done something', async () => {
    end.open();
    error = new Error('no answer of the bank');
    const payments = app.get(Payments);
    await expect(payments.refund('2', 5)).rejects.toThrow('no answer of the bank');
    error = undefined;
    await app.get(LockService).withLock('account', async () => {
      await expect(payments.refund('2', 5)).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    });
    await expect(payments.refund('2', 6)).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
    expect(await payments.refund('2', 5)).toEqual({ charge: 2 });
    expect(attempts).toEqual([1, 2]);
  });
});

/** Its answers go out later than they are given. */
function fastifyWithHooks(): FastifyAdapter {
  const adapter = new FastifyAdapter();
  const { addHook } = adapter.getInstance() as { addHook(name: string, hook: unknown): void };
  addHook.call(adapter.getInstance(), 'onSend', async (_request: unknown, _reply: unknown, payload: unknown) => {
    await new Promise(setImmediate);
    return payload;
  });
  return adapter;
}
