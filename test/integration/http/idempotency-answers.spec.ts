import 'reflect-metadata';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import {
  type ArgumentsHost,
  Catch,
  ClassSerializerInterceptor,
  Controller,
  type ExceptionFilter,
  Get,
  HttpCode,
  type INestApplication,
  NotFoundException,
  Post,
  Redirect,
  Res,
  type Type,
  UseFilters,
  UseGuards,
  UseInterceptors,
  Version,
  VersioningType,
} from '@nestjs/common';
import { NestFactory, Reflector } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Exclude } from 'class-transformer';
import { idempotencyKey, instancesOf, memory, RateLimitGuard, RateLimitPolicy, RedisLockModule } from 'nest-redis-lock';
import { RecordingLogger } from '../../support/recording-logger.js';

describe('answers that are kept', () => {
  /** Answers that Nest does not send as plain JSON of a handler's result. */

  const scope = () => 'everyone';

  class User {
    @Exclude()
    readonly password = 'secret';

    constructor(readonly id: number) {}
  }

  interface Headers {
    header(name: string, value: string | string[]): unknown;
    redirect(to: string): unknown;
  }

  let runs = 0;

  @Catch(NotFoundException)
  class NotFoundFilter implements ExceptionFilter {
    catch(error: NotFoundException, host: ArgumentsHost): void {
      const response = host.switchToHttp().getResponse<{ status(code: number): { send(body: object): void } }>();
      response.status(410).send({ gone: error.message });
    }
  }

  @Controller()
  class Answers {
    @Post('revived')
    @UseInterceptors(idempotencyKey({ scope, revive: instancesOf(User) }))
    async revived(): Promise<User> {
      return new User(++runs);
    }

    @Post('plain')
    @UseInterceptors(idempotencyKey({ scope }))
    async plain(): Promise<User> {
      return new User(++runs);
    }

    @Post('elsewhere')
    @Redirect('/default', 302)
    @UseInterceptors(idempotencyKey({ scope }))
    async elsewhere(): Promise<object> {
      return { url: `/places/${++runs}`, statusCode: 303 };
    }

    @Post('empty')
    @HttpCode(204)
    @UseInterceptors(idempotencyKey({ scope }))
    async empty(): Promise<void> {
      runs += 1;
    }

    @Post('date')
    @UseInterceptors(idempotencyKey({ scope }))
    async date(): Promise<Date> {
      return new Date(++runs);
    }

    @Post('failing')
    @UseInterceptors(idempotencyKey({ scope, keepErrors: () => true }))
    async failing(): Promise<void> {
      runs += 1;
      throw new RangeError('out of stock');
    }

    @Post('filtered')
    @UseFilters(NotFoundFilter)
    @UseInterceptors(idempotencyKey({ scope }))
    async filtered(): Promise<void> {
      runs += 1;
      throw new NotFoundException('sold out');
    }

    @Post('unread')
    @UseInterceptors(idempotencyKey({ scope, fingerprint: () => undefined }))
    async unread(): Promise<number> {
      return ++runs;
    }

    @Post('cookies')
    @UseInterceptors(idempotencyKey({ scope, headers: ['Set-Cookie', 'X-Absent'] }))
    async cookies(@Res({ passthrough: true }) response: Headers): Promise<string> {
      response.header('Set-Cookie', ['a=1', `b=${++runs}`]);
      response.header('Location', '/not-kept');
      return 'baked';
    }

    @Post('measured')
    @UseInterceptors(idempotencyKey({ scope, headers: ['Content-Length', 'Date', 'X-Kept'] }))
    async measured(@Res({ passthrough: true }) response: Headers): Promise<string> {
      runs += 1;
      response.header('Content-Length', '8');
      response.header('Date', 'long ago');
      response.header('X-Kept', 'yes');
      return 'measured';
    }

    @Post('redirected')
    @UseInterceptors(idempotencyKey({ scope }))
    async redirected(@Res({ passthrough: true }) response: Headers): Promise<void> {
      runs += 1;
      response.redirect('/elsewhere');
    }
  }

  describe.each([
    ['Express', () => new ExpressAdapter()],
    ['Fastify', () => new FastifyAdapter()],
  ] as const)('a repeated answer on %s', (_, adapter) => {
    let app: INestApplication;
    const logger = new RecordingLogger();

    beforeAll(async () => {
      class Root {}
      const imports = [RedisLockModule.forRoot({ backend: memory() })];
      app = await NestFactory.create({ module: Root, imports, controllers: [Answers] }, adapter(), { logger });
      app.useGlobalInterceptors(new ClassSerializerInterceptor(app.get(Reflector)));
      await app.listen(0, '127.0.0.1');
    });
    beforeEach(() => {
      runs = 0;
    });
    afterAll(() => app.close());

    async function twice(path: string) {
      const answers = [];
      for (let time = 1; time <= 2; time++) {
        const headers = { 'Idempotency-Key': 'one' };
        const answer = await fetch(`${await app.getUrl()}/${path}`, { method: 'POST', headers, redirect: 'manual' });
        answers.push({ status: answer.status, headers: answer.headers, body: await answer.text() });
      }
      const [first, second] = answers as [(typeof answers)[number], (typeof answers)[number]];
      expect(runs).toBe(1);
      expect([second.status, second.body]).toEqual([first.status, first.body]);
      expect([first, second].map(({ headers }) => headers.get('Idempotent-Replayed'))).toEqual([null, 'true']);
      return { first, second };
    }

    it('hides what @Exclude() hides, with "revive"', async () => {
      const { first } = await twice('revived');
      expect(JSON.parse(first.body)).toEqual({ id: 1 });
      expect(logger.matching(/instance of User/)).toEqual([]);
    });

    it('sends what @Exclude() hides without "revive", and a warning names the class', async () => {
      await expect(twice('plain')).rejects.toThrow('secret');
      expect(logger.matching(/holds an instance of User \(\.body\)/)).toHaveLength(1);
    });

    it('is the same redirection', async () => {
      const { first, second } = await twice('elsewhere');
      expect(first.status).toBe(303);
      for (const { headers } of [first, second]) expect(headers.get('Location')).toBe('/places/1');
    });

    it('has no body where the first had none', async () => {
      const { first } = await twice('empty');
      expect([first.status, first.body]).toEqual([204, '']);
    });

    it('is the same date', async () => {
      const { first } = await twice('date');
      expect(first.body).toBe('"1970-01-01T00:00:00.001Z"');
    });

    it('is the same failure where an error of any class is kept', async () => {
      const { first } = await twice('failing');
      expect(first.status).toBe(500);
    });

    it('is made by the same exception filter', async () => {
      const { first } = await twice('filtered');
      expect([first.status, JSON.parse(first.body)]).toEqual([410, { gone: 'sold out' }]);
    });

    it('is that of the same path where the request has no fingerprint', async () => {
      const { first } = await twice('unread');
      expect([first.status, first.body]).toEqual([201, '1']);
    });

    it('has the headers that are chosen, and all of their values', async () => {
      const { first, second } = await twice('cookies');
      for (const { headers } of [first, second]) expect(headers.getSetCookie()).toEqual(['a=1', 'b=1']);
      expect([first, second].map(({ headers }) => headers.get('Location'))).toEqual(['/not-kept', null]);
    });

    it('has no header that belongs to one answer on one connection', async () => {
      const { first, second } = await twice('measured');
      expect(first.headers.get('Date')).toBe('long ago');
      expect(second.headers.get('Date')).not.toBe('long ago');
      for (const { headers } of [first, second])
        expect([headers.get('X-Kept'), headers.get('Content-Length')]).toEqual(['yes', '8']);
    });

    it('is none where the handler has answered by itself: it runs again, and the log names it', async () => {
      for (let time = 1; time <= 2; time++) {
        const headers = { 'Idempotency-Key': 'one' };
        const answer = await fetch(`${await app.getUrl()}/redirected`, { method: 'POST', headers, redirect: 'manual' });
        expect(answer.headers.get('Location')).toBe('/elsewhere');
        expect(answer.headers.get('Idempotent-Replayed')).toBeNull();
        expect(runs).toBe(time);
      }
      expect(logger.matching(/Answers.redirected has answered by itself.*return the body/)).not.toEqual([]);
    });
  });
});

describe('routes of one name', () => {
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
          expect(await statuses('public/list', 'admin/list', 'public/list', 'admin/list')).toEqual([
            200, 200, 429, 429,
          ]);
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
});
