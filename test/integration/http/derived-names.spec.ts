import 'reflect-metadata';
import { execFile } from 'node:child_process';
import { request as httpRequest } from 'node:http';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  Controller,
  Get,
  type INestApplication,
  type LoggerService,
  Module,
  Post,
  Req,
  type Type,
  UseGuards,
  UseInterceptors,
  Version,
  type VersioningOptions,
  VersioningType,
} from '@nestjs/common';
import { APP_GUARD, APP_INTERCEPTOR, NestFactory, RouterModule } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { idempotencyKey, memory, RateLimitGuard, RateLimitPolicy, RedisLockModule } from 'nest-redis-lock';
import { RecordingLogger } from '../../support/recording-logger.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

/** The built package. */
const BUILT = fileURLToPath(new URL('../../../dist/cjs/index.js', import.meta.url));

const once = idempotencyKey({ scope: () => 'user-1' });

interface Named {
  readonly hostname: string;
  readonly headers: Readonly<Record<string, string>>;
}

function tenantsOf(host: string | RegExp | string[]): Type {
  @Controller({ path: 'tenants', host })
  @UseInterceptors(once)
  class Tenants {
    @Post()
    order(@Req() { hostname }: Named): object {
      return { of: hostname };
    }
  }
  return Tenants;
}

@Controller('versions')
@UseInterceptors(once)
class Versions {
  @Post('declared')
  @Version(['1', '2'])
  declared(@Req() { headers }: Named): object {
    return { of: headers['x-version'] };
  }

  @Post('by-default')
  byDefault(@Req() { headers }: Named): object {
    return { of: headers['x-version'] };
  }
}

/** Two modules of one name, with controllers of one name and routes of one path. */
function areaModule(area: string): Type {
  @Controller()
  class AppController {
    @Get('list')
    @UseGuards(RateLimitGuard)
    @RateLimitPolicy({ limit: 1, per: '1h' })
    list(): string {
      return area;
    }

    @Post('order')
    @UseInterceptors(once)
    order(): object {
      return { of: area };
    }
  }
  @Module({ controllers: [AppController] })
  class AreaModule {}
  return AreaModule;
}

const areas = [areaModule('stock'), areaModule('billing')] as const;

@Controller('orders')
class Orders {
  @Post()
  order(): void {}

  @Get()
  list(): string {
    return 'orders';
  }
}

const running: INestApplication[] = [];

async function start(
  adapter: () => unknown,
  module: object,
  prepare?: (app: INestApplication) => void,
): Promise<string> {
  const app = await NestFactory.create({ module: class Root {}, ...module }, adapter() as never, {
    logger: new RecordingLogger() as LoggerService,
  });
  prepare?.(app);
  await app.listen(0, '127.0.0.1');
  running.push(app);
  return (await app.getUrl()).replace('localhost', '127.0.0.1');
}

afterEach(async () => {
  for (const app of running.splice(0)) await app.close();
});

function post(url: string, headers: Record<string, string> = {}): Promise<string> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest(url, { method: 'POST', headers: { 'idempotency-key': 'key-1', ...headers } });
    sent.on('error', reject);
    sent.on('response', (response) => void text(response).then(resolve, reject));
    sent.end();
  });
}

describe.each([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
] as const)('derived names on %s', (_name, adapter) => {
  const imports = [RedisLockModule.forRoot({ backend: memory(), application: 'shop' })];

  it.each([[':tenant.shop.test'], [/^(?:anna|bert)\.shop\.test$/], [['anna.shop.test', 'bert.shop.test']]])(
    'have the host of the request, of a controller for %p',
    async (host) => {
      if (Array.isArray(host) && adapter().constructor === FastifyAdapter) return;
      const url = await start(adapter, { imports, controllers: [tenantsOf(host)] }, (app) =>
        app.setGlobalPrefix('api'),
      );
      for (const who of ['anna.shop.test', 'bert.shop.test']) {
        expect(await post(`${url}/api/tenants`, { host: who })).toBe(JSON.stringify({ of: who }));
        expect(await post(`${url}/api/tenants`, { host: `${who}:80` })).toBe(JSON.stringify({ of: who }));
      }
    },
  );

  it.each<[string, VersioningOptions, (version: string) => Record<string, string>]>([
    ['a header', { type: VersioningType.HEADER, header: 'X-Version' }, () => ({})],
    [
      'the media type',
      { type: VersioningType.MEDIA_TYPE, key: 'v=' },
      (version) => ({ accept: `application/json;v=${version}` }),
    ],
    [
      'a function',
      { type: VersioningType.CUSTOM, extractor: (request) => (request as Named).headers['x-version'] ?? '' },
      () => ({}),
    ],
  ])('have the version of the request, of %s', async (_what, versioning, headersOf) => {
    const url = await start(adapter, { imports, controllers: [Versions] }, (app) => {
      app.enableVersioning({ ...versioning, defaultVersion: ['1', '2'] });
    });
    for (const path of ['declared', 'by-default']) {
      for (const who of ['1', '2']) {
        const headers = { 'x-version': who, ...headersOf(who) };
        expect(await post(`${url}/versions/${path}`, headers)).toBe(JSON.stringify({ of: who }));
      }
    }
  });

  it('have the path that RouterModule gives to a module', async () => {
    const routes = RouterModule.register(areas.map((module, index) => ({ path: `area-${index}`, module })));
    const url = await start(adapter, { imports: [...imports, ...areas, routes] });
    expect((await fetch(`${url}/area-0/list`)).status).toBe(200);
    expect((await fetch(`${url}/area-0/list`)).status).toBe(429);
    expect((await fetch(`${url}/area-1/list`)).status).toBe(200);
    expect(await post(`${url}/area-0/order`)).toBe(JSON.stringify({ of: 'stock' }));
    expect(await post(`${url}/area-1/order`)).toBe(JSON.stringify({ of: 'billing' }));
  });
});

describe('two applications at one Redis', () => {
  let redis: RedisServer;

  beforeAll(async () => {
    redis = await startRedisServer();
  });
  afterAll(() => redis.stop());

  const guarded = [
    { provide: APP_GUARD, useClass: RateLimitGuard.of({ limit: 2, per: '1h' }) },
    { provide: APP_INTERCEPTOR, useClass: once },
  ];

  function service(application: string, result: object, isAsync = false): Promise<string> {
    @Controller('orders')
    class ServiceOrders extends Orders {
      override order(): object {
        return result;
      }
    }
    Post()(ServiceOrders.prototype, 'order', Object.getOwnPropertyDescriptor(ServiceOrders.prototype, 'order')!);
    const options = { redis: redis.url, application };
    const locks = isAsync
      ? RedisLockModule.forRootAsync({ useFactory: async () => options })
      : RedisLockModule.forRoot(options);
    return start(() => new ExpressAdapter(), { imports: [locks], controllers: [ServiceOrders], providers: guarded });
  }

  it('share neither answers nor limits, by the option application', async () => {
    const billing = await service('billing', { of: 'billing' });
    const stock = await service('stock', { of: 'stock' }, true);
    expect(await post(`${billing}/orders`)).toBe(JSON.stringify({ of: 'billing' }));
    expect(await post(`${stock}/orders`)).toBe(JSON.stringify({ of: 'stock' }));
    expect((await fetch(`${billing}/orders`)).status).toBe(200);
    expect((await fetch(`${billing}/orders`)).status).toBe(429);
    expect((await fetch(`${stock}/orders`)).status).toBe(200);
  });

  it('are processes of one, where they have one name', async () => {
    const [one, other] = [await service('shop', { of: 1 }), await service('shop', { of: 2 }, true)];
    expect(await post(`${one}/orders`)).toBe(JSON.stringify({ of: 1 }));
    expect(await post(`${other}/orders`)).toBe(JSON.stringify({ of: 1 }));
    expect((await fetch(`${one}/orders`)).status).toBe(429);
  });

  /** What an application that has no package.json prints when it starts with this provider, and answers three times. */
  async function nameless(provide: string, useClass: string): Promise<string> {
    const program = `
      import { createRequire } from 'node:module';
      const require = createRequire(${JSON.stringify(import.meta.url)});
      require('reflect-metadata');
      const { idempotencyKey, RateLimiter, RateLimitGuard, RedisLockModule } = require(${JSON.stringify(BUILT)});
      const { Controller, Get } = require('@nestjs/common');
      const { ${provide}, NestFactory } = require('@nestjs/core');
      class Orders { list() { return 'orders'; } }
      Controller('orders')(Orders);
      Get()(Orders.prototype, 'list', Object.getOwnPropertyDescriptor(Orders.prototype, 'list'));
      class Root {}
      const imports = [RedisLockModule.forRoot({ redis: '${redis.url}' })];
      const providers = [{ provide: ${provide}, useClass: ${useClass} }];
      const root = { module: Root, imports, controllers: [Orders], providers };
      const app = await NestFactory.create(root, { logger: ['error', 'warn'], abortOnError: false });
      app.get(RateLimiter).throttlerStorage();
      await app.listen(0, '127.0.0.1');
      const { port } = app.getHttpServer().address();
      for (let count = 0; count < 3; count += 1) console.log((await fetch('http://127.0.0.1:' + port + '/orders')).status);
      await app.close();`;
    const run = promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], { cwd: '/' });
    const { stdout, stderr } = await run.catch((error: { stdout: string; stderr: string }) => error);
    return `${stdout}\n${stderr}`;
  }

  it('do not start where one has no name: it could get the answers of the other one', async () => {
    const said = await nameless('APP_INTERCEPTOR', "idempotencyKey({ scope: () => 'user-1' })");
    expect(said).toMatch(/PrimitiveConfigError: idempotencyKey needs the name .* option "application"$/m);
    expect(said).not.toMatch(/^200$/m);
  });

  it('may share limits where one has no name, with a warning: they refuse too much', async () => {
    const said = await nameless('APP_GUARD', "RateLimitGuard.of({ limit: 2, per: '1h' })");
    expect(said).toMatch(/throttlerStorage needs the name .* Until then, they share its limits/);
    expect(said).toMatch(/RateLimitGuard needs the name .* option "application"\. Until then, they share its limits/);
    expect(said.match(/^\d{3}$/gm)).toEqual(['200', '200', '429']);
  });
});
