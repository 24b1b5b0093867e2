import 'reflect-metadata';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { ApolloDriver, type ApolloDriverConfig } from '@nestjs/apollo';
import { BullModule, Processor, WorkerHost } from '@nestjs/bullmq';
import {
  BadRequestException,
  type CallHandler,
  type CanActivate,
  Controller,
  type ExecutionContext,
  Get,
  Inject,
  Injectable,
  type MessageEvent,
  type NestInterceptor,
  Param,
  type PipeTransform,
  Sse,
  StreamableFile,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import {
  CommandBus,
  CommandHandler,
  CqrsModule,
  EventBus,
  EventsHandler,
  type ICommandHandler,
  type IEventHandler,
  type IQueryHandler,
  QueryBus,
  QueryHandler,
} from '@nestjs/cqrs';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import {
  Args,
  Field,
  GraphQLModule,
  ID,
  Mutation,
  ObjectType,
  Parent,
  Query,
  ResolveField,
  Resolver,
} from '@nestjs/graphql';
import { ClientProxyFactory, EventPattern, MessagePattern, Payload, Transport } from '@nestjs/microservices';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { WsAdapter } from '@nestjs/platform-ws';
import { Cron, Interval, ScheduleModule } from '@nestjs/schedule';
import { MessageBody, SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import { type Job, Queue, QueueEvents } from 'bullmq';
import { DistributedLock, LockService } from 'nest-redis-lock';
import { concat, defer, firstValueFrom, NEVER, Observable, of, startWith, switchMap, tap, timer } from 'rxjs';
import { WebSocket } from 'ws';
import { eventually } from '../../support/eventually.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { clearRuns, ran, start, type Started, Witness } from '../../support/transport-app.js';

clearRuns();

it('microservice: message and event handlers', async () => {
  @Controller()
  class Orders extends Witness {
    @MessagePattern('order.place')
    @DistributedLock('order:<0.id>')
    async place(@Payload() _order: { id: string }): Promise<string> {
      return this.witness('place');
    }

    @DistributedLock('order:<0.id>')
    @EventPattern('order.paid')
    async paid(@Payload() _order: { id: string }): Promise<void> {
      this.witness('paid');
    }
  }
  let port = 0;
  await using started = await start({
    controllers: [Orders],
    prepare: async (app) => {
      const server = app.connectMicroservice({ transport: Transport.TCP, options: { host: '127.0.0.1', port: 0 } });
      await app.startAllMicroservices();
      port = server.unwrap<{ address(): AddressInfo }>().address().port;
    },
  });
  const client = ClientProxyFactory.create({ transport: Transport.TCP, options: { host: '127.0.0.1', port } });
  expect(await firstValueFrom(client.send<string>('order.place', { id: '1' }))).toBe('order:1');
  await firstValueFrom(client.emit('order.paid', { id: '2' }), { defaultValue: undefined });
  expect(await eventually(() => ran.get('paid'))).toEqual(['order:2']);
  const held = await started.locks.acquire('order:1');
  ran.clear();
  await expect(firstValueFrom(client.send<string>('order.place', { id: '1' }))).rejects.toBeDefined();
  expect(ran.size).toBe(0);
  await held.release();
  await client.close();
});

it('GraphQL: queries, mutations and field resolvers', async () => {
  @ObjectType()
  class Product {
    @Field(() => ID)
    sku!: string;
  }

  @Resolver(() => Product)
  class Products extends Witness {
    @Query(() => Product)
    @DistributedLock('product:<0>')
    async product(@Args('sku') sku: string): Promise<Product> {
      this.witness('product');
      return { sku };
    }

    @DistributedLock('product:<0>')
    @Mutation(() => String)
    async deduct(@Args('sku') _sku: string): Promise<string> {
      return this.witness('deduct');
    }

    @ResolveField(() => String)
    @DistributedLock('stock:<0.sku>')
    async stock(@Parent() _product: Product): Promise<string> {
      return this.witness('stock');
    }
  }
  await using started = await start({
    imports: [GraphQLModule.forRoot<ApolloDriverConfig>({ driver: ApolloDriver, autoSchemaFile: true })],
    providers: [Products],
  });
  const ask = async (query: string): Promise<{ data: unknown; errors?: { message: string }[] }> => {
    const response = await fetch(`${started.url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query }),
    });
    return response.json() as never;
  };
  expect(await ask('{ product(sku: "a") { sku stock } }')).toEqual({
    data: { product: { sku: 'a', stock: 'stock:a' } },
  });
  expect(ran.get('product')).toEqual(['product:a']);
  expect(await ask('mutation { deduct(sku: "b") }')).toEqual({ data: { deduct: 'product:b' } });
  const held = await started.locks.acquire('product:b');
  expect((await ask('mutation { deduct(sku: "b") }')).errors?.[0]?.message).toMatch(/busy/);
  await held.release();
});

it('WebSocket gateways', async () => {
  @WebSocketGateway({ path: '/orders' })
  class Orders extends Witness {
    @SubscribeMessage('place')
    @DistributedLock('order:<0.id>')
    async place(@MessageBody() _order: { id: string }): Promise<{ event: string; data: string }> {
      return { event: 'placed', data: this.witness('place') };
    }
  }
  await using started = await start({
    providers: [Orders],
    prepare: (app) => app.useWebSocketAdapter(new WsAdapter(app)),
  });
  const socket = new WebSocket(`${started.url.replace('http', 'ws')}/orders`);
  await once(socket, 'open');
  const answer = async (): Promise<unknown> => {
    const message = once(socket, 'message') as Promise<[Buffer]>;
    socket.send(JSON.stringify({ event: 'place', data: { id: '1' } }));
    return JSON.parse(String((await message)[0]));
  };
  expect(await answer()).toEqual({ event: 'placed', data: 'order:1' });
  const held = await started.locks.acquire('order:1');
  ran.clear();
  expect(await answer()).toMatchObject({ event: 'exception' });
  expect(ran.size).toBe(0);
  await held.release();
  socket.close();
  await once(socket, 'close');
});

it('CQRS: command, query and event handlers', async () => {
  class Place {
    constructor(readonly id: string) {}
  }
  class Find {
    constructor(readonly id: string) {}
  }
  class Placed {
    constructor(readonly id: string) {}
  }

  @CommandHandler(Place)
  class PlaceHandler extends Witness implements ICommandHandler<Place> {
    @DistributedLock('order:<0.id>')
    async execute(_command: Place): Promise<string> {
      return this.witness('command');
    }
  }

  @QueryHandler(Find)
  class FindHandler extends Witness implements IQueryHandler<Find> {
    @DistributedLock('order:<0.id>')
    async execute(_query: Find): Promise<string> {
      return this.witness('query');
    }
  }

  @EventsHandler(Placed)
  class PlacedHandler extends Witness implements IEventHandler<Placed> {
    @DistributedLock('order:<0.id>')
    async handle(_event: Placed): Promise<void> {
      this.witness('event');
    }
  }
  await using started = await start({
    imports: [CqrsModule.forRoot()],
    providers: [PlaceHandler, FindHandler, PlacedHandler],
  });
  expect(await started.app.get(CommandBus).execute(new Place('1'))).toBe('order:1');
  expect(await started.app.get(QueryBus).execute(new Find('2'))).toBe('order:2');
  await started.app.get(EventBus).publish(new Placed('3'));
  expect(await eventually(() => ran.get('event'))).toEqual(['order:3']);
  const held = await started.locks.acquire('order:1');
  await expect(started.app.get(CommandBus).execute(new Place('1'))).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
  await held.release();
});

it('BullMQ processors', async () => {
  await using redis = await startRedisServer();
  const connection = { host: '127.0.0.1', port: redis.port };

  @Processor('orders')
  class Orders extends WorkerHost {
    constructor(@Inject(LockService) private readonly locks: LockService) {
      super();
    }

    @DistributedLock('order:<0.data.id>')
    async process(_job: Job<{ id: string }>): Promise<string> {
      return String(this.locks.current()?.keys);
    }
  }
  await using started = await start({
    imports: [BullModule.forRoot({ connection }), BullModule.registerQueue({ name: 'orders' })],
    providers: [Orders],
  });
  const queue = new Queue('orders', { connection });
  const events = new QueueEvents('orders', { connection });
  try {
    await events.waitUntilReady();
    const job = await queue.add('place', { id: '1' });
    expect(await job.waitUntilFinished(events, 10_000)).toBe('order:1');
    const held = await started.locks.acquire('order:1');
    const busy = await queue.add('place', { id: '1' });
    await expect(busy.waitUntilFinished(events, 10_000)).rejects.toThrow(/busy/);
    await held.release();
  } finally {
    await events.close();
    await queue.close();
  }
});

it('@Cron and @Interval, above and below the lock', async () => {
  @Injectable()
  class Jobs extends Witness {
    @Interval(20)
    @DistributedLock('job:interval')
    async intervalAbove(): Promise<void> {
      this.witness('intervalAbove');
    }

    @DistributedLock('job:interval-below')
    @Interval(20)
    async intervalBelow(): Promise<void> {
      this.witness('intervalBelow');
    }

    @Cron('* * * * * *')
    @DistributedLock('job:cron', { onBusy: 'skip' })
    async cronAbove(): Promise<void> {
      this.witness('cronAbove');
    }

    @DistributedLock('job:cron-below', { onBusy: 'skip' })
    @Cron('* * * * * *')
    async cronBelow(): Promise<void> {
      this.witness('cronBelow');
    }

    @Cron('* * * * * *')
    @DistributedLock('job:elsewhere', { onBusy: 'skip' })
    async elsewhere(): Promise<void> {
      this.witness('elsewhere');
    }
  }
  await using started = await start({ imports: [ScheduleModule.forRoot()], providers: [Jobs] });
  const elsewhere = await started.locks.acquire('job:elsewhere');
  await eventually(() => ran.size === 4);
  expect(Object.fromEntries(ran)).toEqual({
    intervalAbove: ['job:interval'],
    intervalBelow: ['job:interval-below'],
    cronAbove: ['job:cron'],
    cronBelow: ['job:cron-below'],
  });
  await elsewhere.release();
});

it('event emitter listeners', async () => {
  @Injectable()
  class Listener extends Witness {
    @OnEvent('order.placed')
    @DistributedLock('order:<0.id>')
    async placed(_order: { id: string }): Promise<void> {
      this.witness('placed');
    }
  }
  await using started = await start({ imports: [EventEmitterModule.forRoot()], providers: [Listener] });
  await started.app.get(EventEmitter2).emitAsync('order.placed', { id: '1' });
  expect(ran.get('placed')).toEqual(['order:1']);
});

it('HTTP: after guards, interceptors and pipes, and not at all where one of them refuses', async () => {
  let steps: string[] = [];

  @Injectable()
  class Steps implements CanActivate, NestInterceptor, PipeTransform {
    private note(step: string): void {
      steps.push(step);
    }

    canActivate(context: ExecutionContext): boolean {
      this.note('guard');
      return context.switchToHttp().getRequest<{ url: string }>().url !== '/guarded';
    }

    intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
      this.note('interceptor');
      return next.handle().pipe(tap(() => this.note('interceptor again')));
    }

    transform(value: string): string {
      this.note('pipe');
      if (value === 'piped') throw new BadRequestException();
      return value.toUpperCase();
    }
  }

  @Controller()
  class Orders extends Witness {
    @Get(':id')
    @DistributedLock((id: string) => {
      steps.push('lock');
      return `order:${id}`;
    })
    @UseGuards(Steps)
    @UseInterceptors(Steps)
    async place(@Param('id', Steps) _id: string): Promise<string> {
      steps.push('method');
      return this.witness('place');
    }
  }
  await using started = await start({ controllers: [Orders], providers: [Steps] });
  expect(await (await fetch(`${started.url}/a`)).text()).toBe('order:A');
  expect(steps).toEqual(['guard', 'interceptor', 'pipe', 'lock', 'method', 'interceptor again']);
  steps = [];
  expect((await fetch(`${started.url}/guarded`)).status).toBe(403);
  expect((await fetch(`${started.url}/piped`)).status).toBe(400);
  expect(steps).toEqual(['guard', 'guard', 'interceptor', 'pipe']);
});

describe.each([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
])('responses that take their time, on %s', (_name, adapter) => {
  let source: Readable;

  @Controller()
  class Streams extends Witness {
    @Sse('events/:id')
    @DistributedLock('events:<0>')
    events(@Param('id') _id: string): Observable<MessageEvent> {
      return NEVER.pipe(startWith({ data: this.witness('events') }));
    }

    @Sse('brief/:id')
    @DistributedLock('brief:<0>', { ttl: 100, renew: false })
    brief(@Param('id') id: string): Observable<MessageEvent> {
      return NEVER.pipe(startWith({ data: `for ${id}` }));
    }

    @Sse('inner/:id')
    inner(@Param('id') id: string): Observable<MessageEvent> {
      const locked = defer(() => started.locks.withLock(`inner:${id}`, { wait: 0 }, async () => ({ data: 'locked' })));
      return concat(of({ data: `for ${id}` }), timer(50).pipe(switchMap(() => locked)));
    }

    @Get('last/:id')
    @DistributedLock('last:<0>')
    last(@Param('id') _id: string): Observable<string> {
      return of(this.witness('last'));
    }

    @Get('file/:id')
    @DistributedLock('file:<0>')
    async file(@Param('id') _id: string): Promise<StreamableFile> {
      this.witness('file');
      return new StreamableFile(source);
    }

    @Get('short/:id')
    @DistributedLock('short:<0>', { ttl: 100, renew: false })
    async short(@Param('id') _id: string): Promise<StreamableFile> {
      return new StreamableFile(source);
    }
  }

  let started: Started;
  beforeAll(async () => {
    started = await start({ controllers: [Streams], adapter: adapter() });
  });
  afterAll(() => started[Symbol.asyncDispose]());
  beforeEach(() => {
    source = new Readable({ read() {} });
  });
  const free = (name: string) => eventually(async () => !(await started.locks.isLocked(name)));

  it('hold the lock of an @Sse stream until the client leaves', async () => {
    const leaves = new AbortController();
    const response = await fetch(`${started.url}/events/1`, { signal: leaves.signal });
    const reader = response.body!.getReader();
    const chunk = await reader.read();
    expect(new TextDecoder().decode(chunk.value)).toContain('events:1');
    expect(await started.locks.isLocked('events:1')).toBe(true);
    // This process knows its own holder, and answers before the stream of events has begun.
    const busy = await fetch(`${started.url}/events/1`);
    expect(busy.status).toBe(423);
    expect(await busy.json()).toMatchObject({ code: 'LOCK_TIMEOUT' });
    leaves.abort();
    await free('events:1');
  });

  it('tell the client of an @Sse stream that has begun what it may know of an error', async () => {
    const brief = await (await fetch(`${started.url}/brief/secret`)).text();
    expect(brief).toContain('for secret');
    expect(brief).toContain('data: The outcome of the request is unknown.\n');
    expect(brief).not.toContain('brief:');
    await started.locks.withLock('inner:secret', async () => {
      const inner = await (await fetch(`${started.url}/inner/secret`)).text();
      expect(inner).toContain('for secret');
      expect(inner).toContain('data: The resource is locked by another request. Try again later.\n');
      expect(inner).not.toContain('inner:');
    });
  });

  it('answer the last value of an Observable, and give the lock back', async () => {
    expect(await (await fetch(`${started.url}/last/1`)).text()).toBe('last:1');
    expect(await started.locks.isLocked('last:1')).toBe(false);
  });

  it('hold the lock of a file until its stream has ended', async () => {
    source.push('first ');
    const response = await fetch(`${started.url}/file/1`);
    expect(ran.get('file')).toEqual(['file:1']);
    expect(await started.locks.isLocked('file:1')).toBe(true);
    expect((await fetch(`${started.url}/file/1`)).status).toBe(423);
    source.push('last');
    source.push(null);
    expect(await response.text()).toBe('first last');
    await free('file:1');
  });

  it('give the lock of a file back when the client leaves, and when its stream fails', async () => {
    source.push('first');
    const leaves = new AbortController();
    await fetch(`${started.url}/file/2`, { signal: leaves.signal });
    leaves.abort();
    await free('file:2');
    source = new Readable({ read() {} });
    source.push('first');
    const response = await fetch(`${started.url}/file/3`);
    source.destroy(new Error('disk'));
    await expect(response.text()).rejects.toBeDefined();
    await free('file:3');
  });

  it('break a file off when the lock is lost', async () => {
    source.push('first');
    const response = await fetch(`${started.url}/short/1`);
    await expect(response.text()).rejects.toBeDefined();
    expect(source.errored).toMatchObject({ code: 'LOCK_LOST' });
    await free('short:1');
  });
});
