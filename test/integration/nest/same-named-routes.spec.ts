import 'reflect-metadata';
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { Controller, Get, Post, UseGuards, UseInterceptors, Version, VersioningType, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { idempotencyKey, memory, RateLimitGuard, RateLimitPolicy, RedisLockModule } from 'nest-redis-lock';

/** Routes that differ by more than their path, and controllers whose classes have one name. */

const scope = () => 'everyone';

@Controller('orders')
@UseInterceptors(idempotencyKey({ scope }))
class Orders {
  @Post()
  @Version('1')
  first(): string {
    return 'first';
  }

  @Post()
  @Version(['2', '3'])
  second(): string {
    return 'second';
  }
}

@Controller({ path: 'orders', version: '4' })
@UseInterceptors(idempotencyKey({ scope }))
class LaterOrders {
  @Post()
  later(): string {
    return 'later';
  }
}

function hosted(host: string | RegExp): Type {
  @Controller({ path: 'hosted', host })
  @UseInterceptors(idempotencyKey({ scope }))
  class Hosted {
    @Post()
    place(): string {
      return String(host);
    }
  }
  return Hosted;
}

function users(path: string, policy: { name?: string } = {}): Type {
  @Controller(path)
  @UseGuards(RateLimitGuard)
  class Users {
    @Get('list')
    @RateLimitPolicy({ limit: 1, per: '1h', ...policy })
    list(): string {
      return path;
    }
  }
  return Users;
}

@Controller('reports')
@UseGuards(RateLimitGuard)
@RateLimitPolicy({ limit: 1, per: '1h' })
class Reports {
  @Get('a')
  a(): string {
    return 'a';
  }

  @Get('b')
  b(): string {
    return 'b';
  }
}

describe.each([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
] as const)('on %s', (_, adapter) => {
  async function withApp(controllers: Type[], use: (url: string) => Promise<void>): Promise<void> {
    class Root {}
    const imports = [RedisLockModule.forRoot({ backend: memory() })];
    const app = await NestFactory.create({ module: Root, imports, controllers }, adapter(), { logger: false });
    app.enableVersioning({ type: VersioningType.HEADER, header: 'x-version' });
    await app.listen(0, '127.0.0.1');
    try {
      await use(await app.getUrl());
    } finally {
      await app.close();
    }
  }

  it('versions of a route keep answers of their own under one Idempotency-Key', () =>
    withApp([Orders, LaterOrders], async (url) => {
      const place = async (version: string) => {
        const headers = { 'Idempotency-Key': 'one', 'x-version': version };
        return (await fetch(`${url}/orders`, { method: 'POST', headers })).text();
      };
      expect([await place('1'), await place('2'), await place('4')]).toEqual(['first', 'second', 'later']);
    }));

  it('routes with one name at two paths are counted apart, and those with one policy name together', () =>
    withApp(
      [users('public'), users('admin'), users('one', { name: 'both' }), users('two', { name: 'both' }), Reports],
      async (url) => {
        const statuses = async (...paths: string[]) => {
          const found: number[] = [];
          for (const path of paths) found.push((await fetch(`${url}/${path}`)).status);
          return found;
        };
        expect(await statuses('public/list', 'admin/list', 'public/list', 'admin/list')).toEqual([200, 200, 429, 429]);
        expect(await statuses('one/list', 'two/list')).toEqual([200, 429]);
        expect(await statuses('reports/a', 'reports/b')).toEqual([200, 429]);
      },
    ));
});

it('hosts of a route keep answers of their own under one Idempotency-Key', async () => {
  class Root {}
  const imports = [RedisLockModule.forRoot({ backend: memory() })];
  const controllers = [hosted('a.example'), hosted(/^b\./)];
  const app = await NestFactory.create({ module: Root, imports, controllers }, { logger: false });
  await app.listen(0, '127.0.0.1');
  const place = async (host: string) => {
    const headers = { 'Idempotency-Key': 'one', host };
    const sent = request(`${await app.getUrl()}/hosted`, { method: 'POST', headers }).end();
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    return text(answer);
  };
  expect([await place('a.example'), await place('b.example')]).toEqual(['a.example', String(/^b\./)]);
  await app.close();
});
