import 'reflect-metadata';
import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import {
  BadRequestException,
  Body,
  ConflictException,
  Controller,
  Get,
  Header,
  HttpCode,
  HttpException,
  type INestApplication,
  Inject,
  Post,
  Res,
  ServiceUnavailableException,
  StreamableFile,
  UnauthorizedException,
  UseInterceptors,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import {
  idempotencyKey,
  type IdempotencyKeyOptions,
  IdempotencyRunningError,
  IdempotencyService,
  type IdempotentRequest,
  memory,
  PrimitiveConfigError,
  RedisLockModule,
} from 'nest-redis-lock';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';

const scope = ({ headers }: IdempotentRequest) => String(headers['x-user'] ?? '');

interface PassThrough {
  status(code: number): unknown;
  header(name: string, value: string): unknown;
}

/** A value that writes its own JSON, as documents of databases do. */
class Money {
  readonly #cents = 500;

  toJSON(): string {
    return `${this.#cents} cents`;
  }
}

const gates = new Map<string, { readonly began: Gate; readonly end: Gate }>();
let runs: string[] = [];

@Controller()
@UseInterceptors(idempotencyKey({ scope }))
class Orders {
  constructor(@Inject(IdempotencyService) private readonly service: IdempotencyService) {}

  @Post('orders')
  @Header('X-Fixed', 'always')
  async create(@Body() body: { sku: string }, @Res({ passthrough: true }) response: PassThrough): Promise<unknown> {
    runs.push(body.sku);
    response.status(202);
    response.header('Location', `/orders/${runs.length}`);
    response.header('X-Request', String(runs.length));
    response.header('Set-Cookie', `run=${runs.length}`);
    response.header('X-Powered-By', 'orders');
    const { attempt } = this.service.current() ?? {};
    return { order: runs.length, at: new Date(0), price: new Money(), attempt };
  }

  @Post('kinds')
  @HttpCode(200)
  async kinds(@Body() { kind }: { kind: string }): Promise<unknown> {
    runs.push(kind);
    const status = /^status (\d+)$/.exec(kind)?.[1];
    if (status !== undefined) throw new HttpException('again', Number(status));
    switch (kind) {
      case 'text':
        return 'text';
      case 'bytes':
        return Buffer.from('bytes');
      case 'nothing':
        return undefined;
      case 'no JSON':
        return { toJSON: () => undefined };
      case 'text as JSON':
        return new Money();
      case 'date':
        return new Date(0);
      case 'number':
        return NaN;
      case 'stream':
        return new StreamableFile(Readable.from(['file']));
      case 'function':
        return () => {};
      case 'unauthorized':
        throw new UnauthorizedException();
      case 'conflict':
        throw new ConflictException({ message: 'out of stock' });
      case 'unavailable':
        throw new ServiceUnavailableException();
      case 'error of the library':
        throw new IdempotencyRunningError('another', { waited: 0, retryAfter: 1_000 });
      default:
        throw new BadRequestException();
    }
  }

  @Post('slow')
  async slow(@Body() { id }: { id: string }): Promise<string> {
    runs.push(id);
    const gate = gates.get(id);
    gate?.began.open();
    await gate?.end.opened;
    return 'done';
  }

  @Post('itself')
  async itself(@Res() response: ServerResponse): Promise<void> {
    runs.push('itself');
    response.end();
  }

  @Post('other')
  async other(): Promise<number> {
    return runs.push('other');
  }

  @Get('read')
  async read(): Promise<number> {
    return runs.push('read');
  }

  @Post('required')
  @UseInterceptors(idempotencyKey({ scope, required: true }))
  async required(): Promise<number> {
    return runs.push('required');
  }

  @Post('scoped')
  @UseInterceptors(idempotencyKey({ scope: () => 'everyone' }))
  async scoped(): Promise<number> {
    return runs.push('scoped');
  }

  @Post('unscoped')
  @UseInterceptors(idempotencyKey({ scope: () => '' }))
  async unscoped(): Promise<number> {
    return runs.push('unscoped');
  }
}

@Controller('places')
class Places {
  @Post(':id')
  @UseInterceptors(idempotencyKey({ scope, fingerprint: ({ body }: IdempotentRequest) => body }))
  async place(): Promise<number> {
    return runs.push('place');
  }
}

describe.each([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
] as const)('the Idempotency-Key header on %s', (_, adapter) => {
  let app: INestApplication;
  let url: string;
  let key = 0;

  beforeAll(async () => {
    const imports = [RedisLockModule.forRoot({ backend: memory() })];
    class Root {}
    app = await NestFactory.create({ module: Root, imports, controllers: [Orders, Places] }, adapter(), {
      logger: new RecordingLogger(),
    });
    await app.listen(0, '127.0.0.1');
    url = await app.getUrl();
  });
  beforeEach(() => {
    key += 1;
    runs = [];
  });
  afterAll(() => app.close());

  const post = async (path: string, body: object, headers: Record<string, string> = {}) => {
    const response = await fetch(`${url}/${path}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': `key-${key}`, 'X-User': 'ann', ...headers },
      body: JSON.stringify(body),
    });
    return { status: response.status, headers: response.headers, body: await response.text() };
  };
  const replayed = ({ headers }: { headers: Headers }) => headers.get('Idempotent-Replayed');

  it('runs the handler once, and repeats status, body and the headers that it set, but no cookies', async () => {
    const first = await post('orders', { sku: 'a' });
    const second = await post('orders', { sku: 'a' });
    expect(runs).toEqual(['a']);
    expect([first.status, second.status]).toEqual([202, 202]);
    expect(second.body).toBe(first.body);
    expect(JSON.parse(first.body)).toMatchObject({ order: 1, price: '500 cents', attempt: 1 });
    for (const { headers } of [first, second]) {
      expect(headers.get('Location')).toBe('/orders/1');
      expect(headers.get('X-Request')).toBe('1');
      expect(headers.get('X-Fixed')).toBe('always');
      expect(headers.get('X-Powered-By')).toBe('orders');
      expect(headers.get('Content-Type')).toBe('application/json; charset=utf-8');
    }
    expect([first, second].map(({ headers }) => headers.getSetCookie())).toEqual([['run=1'], []]);
    expect([first, second].map(replayed)).toEqual([null, 'true']);
  });

  it.each(['text', 'bytes', 'nothing', 'no JSON', 'text as JSON', 'date', 'number'])(
    'repeats a body of the kind %s',
    async (kind) => {
      const first = await post('kinds', { kind });
      const second = await post('kinds', { kind });
      expect(runs).toEqual([kind]);
      expect([second.status, second.body]).toEqual([200, first.body]);
      expect(second.headers.get('Content-Type')).toBe(first.headers.get('Content-Type'));
    },
  );

  it.each(['conflict', 'invalid'])('repeats an answer with a 4xx status: %s', async (kind) => {
    const first = await post('kinds', { kind });
    const second = await post('kinds', { kind });
    expect(runs).toEqual([kind]);
    expect(second).toMatchObject({ status: first.status, body: first.body });
    expect([first, second].map(replayed)).toEqual([null, 'true']);
  });

  it.each([
    ['unavailable', 503],
    ['unauthorized', 401],
    ['error of the library', 409],
    ...[408, 423, 425, 429].map((status): [string, number] => [`status ${status}`, status]),
  ])('runs the handler again after an answer that may change: %s', async (kind, expected) => {
    for (const attempt of [1, 2]) {
      const { status } = await post('kinds', { kind });
      expect([status, runs.length]).toEqual([expected, attempt]);
    }
  });

  it('does not run a handler that would answer by @Res() itself', async () => {
    const { status, body } = await post('itself', {});
    expect([status, JSON.parse(body)]).toMatchObject([500, { code: 'PRIMITIVE_CONFIG' }]);
    expect(runs).toEqual([]);
  });

  it('answers 422 for another path of the same route, whatever the fingerprint is', async () => {
    expect((await post('places/1', { sku: 'a' })).status).toBe(201);
    expect((await post('places/2', { sku: 'a' })).status).toBe(422);
    expect(replayed(await post('places/1?again', { sku: 'a' }))).toBe('true');
    expect(runs).toEqual(['place']);
  });

  it.each(['stream', 'function'])('refuses a %s, and does not run the handler again', async (kind) => {
    for (let time = 1; time <= 2; time++) {
      const { status, body } = await post('kinds', { kind });
      expect([status, JSON.parse(body)]).toEqual([500, expect.objectContaining({ code: 'IDEMPOTENCY_RESULT' })]);
    }
    expect(runs).toEqual([kind]);
  });

  it('answers 422 for another body or query, and does not run the handler', async () => {
    await post('orders', { sku: 'a' });
    for (const other of [await post('orders', { sku: 'b' }), await post('orders?express=1', { sku: 'a' })]) {
      expect([other.status, JSON.parse(other.body)]).toMatchObject([422, { code: 'IDEMPOTENCY_CONFLICT' }]);
      expect(replayed(other)).toBeNull();
    }
    expect(runs).toEqual(['a']);
  });

  it('answers 409 with Retry-After while the first request runs', async () => {
    const gate = { began: new Gate(), end: new Gate() };
    const id = `slow-${key}`;
    gates.set(id, gate);
    const first = post('slow', { id });
    await gate.began.opened;
    const second = await post('slow', { id });
    expect([second.status, second.headers.get('Retry-After'), replayed(second)]).toEqual([409, '1', null]);
    gate.end.open();
    expect((await first).status).toBe(201);
    expect(await post('slow', { id })).toMatchObject({ status: 201, body: 'done' });
    expect(runs).toEqual([id]);
  });

  it('takes a key for another one where user, route or key differ', async () => {
    await post('orders', { sku: 'a' });
    await post('orders', { sku: 'a' }, { 'X-User': 'bob' });
    await post('orders', { sku: 'a' }, { 'Idempotency-Key': `another-${key}` });
    await post('other', {});
    expect(runs).toEqual(['a', 'a', 'a', 'other']);
  });

  it('takes a key in quotes, as the IETF draft writes it, for the same key', async () => {
    await post('orders', { sku: 'a' });
    await post('orders', { sku: 'a' }, { 'Idempotency-Key': `"key-${key}"` });
    expect(runs).toEqual(['a']);
  });

  it.each(['""', 'a,b', '"open', 'with space', 'x'.repeat(256)])('answers 400 for the header %p', async (header) => {
    const { status, body } = await post('orders', { sku: 'a' }, { 'Idempotency-Key': header });
    expect([status, JSON.parse(body)]).toMatchObject([400, { code: 'IDEMPOTENCY_HEADER' }]);
    expect(runs).toEqual([]);
  });

  it('counts for the scope of the controller where its handler has another one', async () => {
    const answers = [await post('scoped', {}), await post('scoped', {}, { 'X-User': 'bob' }), await post('scoped', {})];
    expect(answers.map(({ body }) => body)).toEqual(['1', '2', '1']);
    expect(answers.map(replayed)).toEqual([null, null, 'true']);
  });

  it('is needed only where it is required, and ignored by GET', async () => {
    const headers = { 'Content-Type': 'application/json', 'X-User': 'ann' };
    const without = (path: string) => fetch(`${url}/${path}`, { method: 'POST', headers, body: '{"sku":"a"}' });
    for (let time = 1; time <= 2; time++) expect((await without('orders')).status).toBe(202);
    expect((await without('required')).status).toBe(400);
    for (let time = 1; time <= 2; time++) await fetch(`${url}/read`, { headers: { 'Idempotency-Key': `key-${key}` } });
    expect(runs).toEqual(['a', 'a', 'read', 'read']);
  });

  it('answers once where it stands on the controller and on the handler', async () => {
    const answers = [await post('required', {}), await post('required', {})];
    expect(answers.map((each) => [each.status, replayed(each)])).toEqual([
      [201, null],
      [201, 'true'],
    ]);
    expect(runs).toEqual(['required']);
  });

  it('does not run the handler where the scope does not identify the client', async () => {
    const { status, body } = await post('unscoped', {});
    expect([status, JSON.parse(body)]).toMatchObject([500, { code: 'PRIMITIVE_KEY' }]);
    expect(runs).toEqual([]);
  });
});

it.each([
  undefined,
  {},
  { scope, fingerprint: 'body' },
  { scope, onRunning: 'later' },
  { scope, keys: 1 },
  { scope, required: 'yes' },
  { scope, methods: 'POST' },
  { scope, headers: [1] },
  { scope, signal: AbortSignal.abort() },
])('idempotencyKey refuses %p', (options) => {
  expect(() => idempotencyKey(options as unknown as IdempotencyKeyOptions)).toThrow(PrimitiveConfigError);
});
