import 'reflect-metadata';
import { Readable } from 'node:stream';
import {
  type ArgumentsHost,
  type CallHandler,
  Catch,
  Controller,
  type ExceptionFilter,
  type ExecutionContext,
  Get,
  Header,
  HttpCode,
  type MessageEvent,
  NotFoundException,
  Param,
  Post,
  Redirect,
  Res,
  Sse,
  StreamableFile,
  UseFilters,
  UseInterceptors,
} from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { CacheConfigError, Cached, CacheHeadersInterceptor } from 'nest-redis-lock';
import { concat, map, type Observable, of, tap } from 'rxjs';
import { type CacheRead, currentReport } from '../../../lib/cache/read/read-report.js';
import { cacheApp, type CacheApp } from '../../support/cache-app.js';

const READS: Record<string, CacheRead[]> = {
  hit: [{ outcome: 'hit', remaining: 59_999 }],
  stale: [{ outcome: 'stale', remaining: 5_000 }],
  stored: [{ outcome: 'miss', remaining: 60_000 }],
  skipped: [{ outcome: 'miss' }],
  several: [
    { outcome: 'hit', remaining: 30_000 },
    { outcome: 'miss', remaining: 60_000 },
    { outcome: 'hit', remaining: 90_000 },
  ],
  none: [],
};

const BODY = { id: 7, name: 'Grüße' };

@Controller()
@UseInterceptors(CacheHeadersInterceptor)
class Products {
  @Get('reads/:name')
  async reads(@Param('name') name: string): Promise<unknown> {
    await Promise.resolve();
    for (const read of READS[name] ?? []) currentReport()?.add(read);
    return BODY;
  }

  @Get('cached/:id')
  @Cached('http:<0>', { ttl: '1m', jitter: 0 })
  async cached(@Param('id') id: string): Promise<unknown> {
    return { id };
  }

  @Get('bodies/:kind')
  bodies(@Param('kind') kind: string): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    switch (kind) {
      case 'text':
        return 'text';
      case 'empty':
        return undefined;
      case 'observable':
        return concat(of('first'), of('last'));
      case 'throws':
        return writtenLater(() => {
          throw new TypeError('Do not know how to serialize a BigInt');
        });
      case 'undefined':
        return writtenLater(() => undefined);
      case 'file':
        return new StreamableFile(Readable.from(['file']));
      default:
        throw new NotFoundException();
    }
  }

  @Post('posted')
  @HttpCode(200)
  posted(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }

  @Get('own')
  @Header('Cache-Control', 'no-store')
  @Header('ETag', '"own"')
  own(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }

  @Get('not-found')
  @HttpCode(404)
  notFound(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }

  @Get('redirected')
  @Redirect('/elsewhere')
  redirected(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return { url: '/there' };
  }

  @Get('by-hand')
  byHand(@Res() response: { header(name: string, value: string): unknown; send(body: string): unknown }): void {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    response.header('X-Cache', 'MINE');
    response.send('by hand');
  }

  @Sse('events')
  events(): Observable<MessageEvent> {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return of({ data: 'one' }, { data: 'two' });
  }
}

@Controller('configured')
class Configured {
  @Get('string')
  @UseInterceptors(new CacheHeadersInterceptor({ cacheControl: 'public, max-age=1' }))
  string(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }

  @Get('nothing')
  @UseInterceptors(new CacheHeadersInterceptor({ etag: false, xCache: false, cacheControl: false }))
  nothing(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }

  @Get('without')
  without(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }
}

/** Answers failures, which it forbids to store. */
@Catch()
class NotStored implements ExceptionFilter {
  catch(_error: unknown, host: ArgumentsHost): void {
    const response = host.switchToHttp().getResponse<Answer>();
    response.header('Cache-Control', 'no-store');
    response.status(503).send({ failed: true });
  }
}

interface Answer {
  header(name: string, value: string): unknown;
  status(code: number): { send(body: object): unknown };
}

const failing = {
  intercept: (_context: ExecutionContext, next: CallHandler): Observable<unknown> =>
    next.handle().pipe(
      map(() => {
        throw new NotFoundException();
      }),
    ),
};

const unavailable = {
  intercept: (context: ExecutionContext, next: CallHandler): Observable<unknown> =>
    next.handle().pipe(tap(() => context.switchToHttp().getResponse<Answer>().status(503))),
};

@Controller('failures')
class Failures {
  @Get('above')
  @UseInterceptors(failing, CacheHeadersInterceptor)
  above(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }

  @Get('body')
  @UseInterceptors(CacheHeadersInterceptor)
  body(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return { big: 1n };
  }

  @Get('status')
  @UseInterceptors(unavailable, CacheHeadersInterceptor)
  status(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }

  @Get('filtered')
  @UseFilters(NotStored)
  @UseInterceptors(failing, CacheHeadersInterceptor)
  filtered(): unknown {
    currentReport()?.add({ outcome: 'hit', remaining: 60_000 });
    return BODY;
  }
}

describe.each([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
])('on %s', (platform, adapter) => {
  let served: CacheApp;
  let url: string;

  beforeAll(async () => {
    served = await cacheApp({ controllers: [Products, Configured, Failures] }, { adapter: adapter() });
    await served.app.listen(0, '127.0.0.1');
    url = await served.app.getUrl();
  });
  afterAll(() => served.close());

  const get = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
    fetch(`${url}/${path}`, { method, headers, redirect: 'manual' });

  function told({ headers }: Response): unknown {
    return [headers.get('X-Cache'), headers.get('Cache-Control')];
  }

  it.each([
    ['hit', ['HIT', 'private, max-age=59']],
    ['stale', ['STALE', 'private, max-age=0']],
    ['stored', ['MISS', 'private, max-age=60']],
    ['skipped', ['MISS', 'private, max-age=0']],
    ['several', ['MISS', 'private, max-age=30']],
    ['none', [null, null]],
  ])('tells what the reads of a handler did: %s', async (name, expected) => {
    const response = await get(`reads/${name}`);
    expect(told(response)).toEqual(expected);
    expect(await response.json()).toEqual(BODY);
  });

  it.each([
    ['above', 404, null],
    ['body', 500, null],
    ['status', 503, null],
    ['filtered', 503, 'no-store'],
  ])('sends no header of a success with a failure: %s', async (path, status, cacheControl) => {
    const response = await get(`failures/${path}`);
    expect(response.status).toBe(status);
    expect(told(response)).toEqual([null, cacheControl]);
    const tag = (await get('reads/hit')).headers.get('ETag');
    expect(response.headers.get('ETag')).not.toBe(tag);
  });

  it('tells of @Cached', async () => {
    const miss = await get('cached/1');
    expect(miss.headers.get('X-Cache')).toBe('MISS');
    expect(miss.headers.get('Cache-Control')).toMatch(/^private, max-age=(59|60)$/);
    const hit = await get('cached/1');
    expect(hit.headers.get('X-Cache')).toBe('HIT');
    expect(hit.headers.get('Cache-Control')).toMatch(/^private, max-age=(59|60)$/);
    expect(hit.headers.get('ETag')).toBe(miss.headers.get('ETag'));
  });

  it('tells each of requests at once of its own reads', async () => {
    const names = Array.from({ length: 20 }, (_, index) => (index % 2 ? 'hit' : 'stale'));
    const answers = await Promise.all(names.map((name) => get(`reads/${name}`)));
    expect(answers.map(({ headers }) => headers.get('X-Cache'))).toEqual(names.map((name) => name.toUpperCase()));
  });

  it.each(['GET', 'HEAD'])('answers %s with 304 to a client that has the body', async (method) => {
    const first = await get('reads/hit');
    const tag = first.headers.get('ETag') as string;
    expect(tag).toMatch(/^W\/".+"$/);
    for (const noneMatch of [tag, tag.slice(2), `"other", ${tag}`, '*']) {
      const again = await get('reads/hit', { 'If-None-Match': noneMatch, 'Cache-Control': 'max-age=0' }, method);
      expect(again.status).toBe(304);
      expect(await again.text()).toBe('');
      expect(again.headers.get('ETag')).toBe(tag);
      expect(told(again)).toEqual(['HIT', 'private, max-age=59']);
    }
    const other = await get('reads/hit', { 'If-None-Match': '"other"', 'Cache-Control': 'max-age=0' }, method);
    expect(other.status).toBe(200);
    const reload = await get('reads/hit', { 'If-None-Match': tag, 'Cache-Control': 'no-cache' }, method);
    expect(reload.status).toBe(200);
  });

  it('tags a text, and the last value of an Observable', async () => {
    for (const [kind, body] of [
      ['text', 'text'],
      ['observable', 'last'],
    ] as const) {
      const response = await get(`bodies/${kind}`);
      expect(await response.text()).toBe(body);
      const tag = response.headers.get('ETag') as string;
      expect((await get(`bodies/${kind}`, { 'If-None-Match': tag, 'Cache-Control': 'max-age=0' })).status).toBe(304);
    }
  });

  it.each(['throws', 'undefined'])('sends a body without an ETag that JSON has no text for: %s', async (kind) => {
    const response = await get(`bodies/${kind}`);
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual(BODY);
    expect(response.headers.get('X-Cache')).toBe('HIT');
  });

  it('leaves a handler its own Cache-Control and ETag', async () => {
    const response = await get('own');
    expect(told(response)).toEqual(['HIT', 'no-store']);
    expect(response.headers.get('ETag')).toBe('"own"');
    expect((await get('own', { 'If-None-Match': '"own"', 'Cache-Control': 'max-age=0' })).status).toBe(304);
  });

  it('says nothing of an error, a stream, or another method than GET and HEAD', async () => {
    const answers = [await get('bodies/error'), await get('bodies/file'), await get('posted', {}, 'POST')];
    expect(answers.map(({ status }) => status)).toEqual([404, 200, 200]);
    for (const answer of answers) expect(told(answer)).toEqual([null, null]);
    expect(await answers[1]!.text()).toBe('file');
  });

  it('answers no 304 instead of another status, nor of a redirection', async () => {
    const gone = await get('not-found', { 'If-None-Match': '*', 'Cache-Control': 'max-age=0' });
    expect([gone.status, told(gone)]).toEqual([404, [null, null]]);
    const redirected = await get('redirected', { 'If-None-Match': '*', 'Cache-Control': 'max-age=0' });
    expect([redirected.status, redirected.headers.get('Location')]).toEqual([302, '/there']);
    expect((await get('bodies/empty')).headers.get('X-Cache')).toBe('HIT');
  });

  it('leaves alone what a handler answers itself, and events', async () => {
    const byHand = await get('by-hand');
    expect([byHand.headers.get('X-Cache'), await byHand.text()]).toEqual(['MINE', 'by hand']);
    const events = await get('events');
    expect(events.headers.get('X-Cache')).toBeNull();
    expect(await events.text()).toMatch(/data: one[^]*data: two/);
  });

  it('can be configured to send less, or something else', async () => {
    const string = await get('configured/string');
    expect(told(string)).toEqual(['HIT', 'public, max-age=1']);
    const nothing = await get('configured/nothing', { 'If-None-Match': '*', 'Cache-Control': 'max-age=0' });
    expect(told(nothing)).toEqual([null, null]);
    if (platform === 'Fastify') expect([nothing.status, nothing.headers.get('ETag')]).toEqual([200, null]);
    expect(told(await get('configured/without'))).toEqual([null, null]);
  });
});

it.each<[string, unknown]>([
  ['"options"', null],
  ['"options"', 'etag'],
  ['"options"', []],
  ['"options"', new Map()],
  ['"etags"', { etags: true }],
  ['"etag"', { etag: 'no' }],
  ['"xCache"', { xCache: 0 }],
  ['"cacheControl"', { cacheControl: 60 }],
  ['"cacheControl"', { cacheControl: '' }],
  ['"cacheControl"', { cacheControl: 'no-store\nX-Other: 1' }],
])('refuses an option that it cannot take: %s', (option, options) => {
  const make = () => new CacheHeadersInterceptor(options as object);
  expect(make).toThrow(CacheConfigError);
  expect(make).toThrow(option);
});

/** A body that only the application can write, as with a replacer of its own. */
function writtenLater(first: () => unknown): object {
  let times = 0;
  return { toJSON: () => (times++ === 0 ? first() : BODY) };
}
