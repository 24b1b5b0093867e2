import 'reflect-metadata';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { ApolloDriver, type ApolloDriverConfig } from '@nestjs/apollo';
import { Controller } from '@nestjs/common';
import {
  CommandBus,
  CommandHandler,
  CqrsModule,
  EventBus,
  EventsHandler,
  QueryBus,
  QueryHandler,
  type ICommandHandler,
  type IEventHandler,
  type IQueryHandler,
} from '@nestjs/cqrs';
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
import { WsAdapter } from '@nestjs/platform-ws';
import { MessageBody, SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import { DistributedLock } from 'nest-redis-lock';
import { firstValueFrom } from 'rxjs';
import { WebSocket } from 'ws';
import { eventually } from '../../support/eventually.js';
import { clearRuns, ran, Witness, start } from '../../support/transport-app.js';

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
