import 'reflect-metadata';
import {
  Catch,
  ClassSerializerInterceptor,
  Controller,
  HttpCode,
  NotFoundException,
  Post,
  Redirect,
  Res,
  UseFilters,
  UseInterceptors,
  type ArgumentsHost,
  type ExceptionFilter,
  type INestApplication,
} from '@nestjs/common';
import { NestFactory, Reflector } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Exclude } from 'class-transformer';
import { idempotencyKey, instancesOf, memory, RedisLockModule } from 'nest-redis-lock';
import { RecordingLogger } from '../../support/recording-logger.js';

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
