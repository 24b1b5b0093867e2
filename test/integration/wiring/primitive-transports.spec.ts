import 'reflect-metadata';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { ApolloDriver, type ApolloDriverConfig } from '@nestjs/apollo';
import { Controller } from '@nestjs/common';
import { Args, GraphQLModule, Mutation, Query, Resolver } from '@nestjs/graphql';
import { ClientProxyFactory, MessagePattern, Payload, Transport } from '@nestjs/microservices';
import { WsAdapter } from '@nestjs/platform-ws';
import { MessageBody, SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import { Idempotent, RateLimit, Semaphore, SemaphoreService } from 'nest-redis-lock';
import { firstValueFrom } from 'rxjs';
import { WebSocket } from 'ws';
import { start, type Started } from '../../support/transport-app.js';

/** The decorators of the primitives on handlers that are not HTTP. */

let runs: string[];

beforeEach(() => {
  runs = [];
});

const PERMIT = { permits: 1, wait: 0 } as const;
const ONE = { limit: 1, per: '1h' } as const;

/** Calls the handler of that name with this id. Rejects where it answers with an error. */
type Ask = (handler: 'made' | 'placed' | 'sent', id: string) => Promise<unknown>;

async function expectDecorated({ app }: Started, ask: Ask): Promise<void> {
  const semaphores = app.get(SemaphoreService);
  expect(await ask('made', '1')).toBe('made 1');
  const permit = await semaphores.acquire('make:1', PERMIT);
  await expect(ask('made', '1')).rejects.toBeDefined();
  expect(await ask('made', '2')).toBe('made 2');
  await permit.release();
  expect(runs.splice(0)).toEqual(['made 1', 'made 2']);

  for (let time = 1; time <= 2; time++) expect(await ask('placed', '1')).toBe('placed 1');
  expect(await ask('placed', '2')).toBe('placed 2');
  expect(runs.splice(0)).toEqual(['placed 1', 'placed 2']);

  expect(await ask('sent', '1')).toBe('sent 1');
  await expect(ask('sent', '1')).rejects.toBeDefined();
  expect(await ask('sent', '2')).toBe('sent 2');
  expect(runs).toEqual(['sent 1', 'sent 2']);
}

function ran(what: string): string {
  runs.push(what);
  return what;
}

it('microservice: message handlers', async () => {
  @Controller()
  class Orders {
    @MessagePattern('made')
    @Semaphore('make:<0.id>', PERMIT)
    async made(@Payload() { id }: { id: string }): Promise<string> {
      return ran(`made ${id}`);
    }

    @Idempotent('place:<0.id>', { fingerprint: '<#0>' })
    @MessagePattern('placed')
    async placed(@Payload() { id }: { id: string }): Promise<string> {
      return ran(`placed ${id}`);
    }

    @MessagePattern('sent')
    @RateLimit('send:<0.id>', ONE)
    async sent(@Payload() { id }: { id: string }): Promise<string> {
      return ran(`sent ${id}`);
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
  await expectDecorated(started, (handler, id) => firstValueFrom(client.send<string>(handler, { id })));
  await client.close();
});

it('GraphQL: queries and mutations', async () => {
  @Resolver()
  class Orders {
    @Query(() => String)
    @Semaphore('make:<0>', PERMIT)
    async made(@Args('id') id: string): Promise<string> {
      return ran(`made ${id}`);
    }

    @Idempotent('place:<0>')
    @Mutation(() => String)
    async placed(@Args('id') id: string): Promise<string> {
      return ran(`placed ${id}`);
    }

    @Mutation(() => String)
    @RateLimit('send:<0>', ONE)
    async sent(@Args('id') id: string): Promise<string> {
      return ran(`sent ${id}`);
    }
  }
  await using started = await start({
    imports: [GraphQLModule.forRoot<ApolloDriverConfig>({ driver: ApolloDriver, autoSchemaFile: true })],
    providers: [Orders],
  });
  await expectDecorated(started, async (handler, id) => {
    const query = `${handler === 'made' ? 'query' : 'mutation'} { ${handler}(id: "${id}") }`;
    const response = await fetch(`${started.url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query }),
    });
    const { data, errors } = (await response.json()) as { data: Record<string, unknown>; errors?: unknown };
    if (errors) throw new Error(JSON.stringify(errors));
    return data[handler];
  });
});

it('WebSocket gateways', async () => {
  const answer = (data: string) => ({ event: 'answer', data: ran(data) });

  @WebSocketGateway({ path: '/orders' })
  class Orders {
    @SubscribeMessage('made')
    @Semaphore('make:<0>', PERMIT)
    async made(@MessageBody() id: string): Promise<object> {
      return answer(`made ${id}`);
    }

    @SubscribeMessage('placed')
    @Idempotent('place:<0>')
    async placed(@MessageBody() id: string): Promise<object> {
      return answer(`placed ${id}`);
    }

    @SubscribeMessage('sent')
    @RateLimit('send:<0>', ONE)
    async sent(@MessageBody() id: string): Promise<object> {
      return answer(`sent ${id}`);
    }
  }
  await using started = await start({
    providers: [Orders],
    prepare: (app) => app.useWebSocketAdapter(new WsAdapter(app)),
  });
  const socket = new WebSocket(`${started.url.replace('http', 'ws')}/orders`);
  await once(socket, 'open');
  await expectDecorated(started, async (handler, id) => {
    const message = once(socket, 'message') as Promise<[Buffer]>;
    socket.send(JSON.stringify({ event: handler, data: id }));
    const { event, data } = JSON.parse(String((await message)[0])) as { event: string; data: unknown };
    if (event === 'exception') throw new Error(JSON.stringify(data));
    return data;
  });
  socket.close();
  await once(socket, 'close');
});
