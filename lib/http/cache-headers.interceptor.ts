import type { IncomingHttpHeaders } from 'node:http';
import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common';
import { REDIRECT_METADATA, RENDER_METADATA, SSE_METADATA } from '@nestjs/common/constants.js';
import etag from 'etag';
import fresh from 'fresh';
import { map, Observable, takeLast } from 'rxjs';
import { ReadReport, withReadReport } from '../cache/read/read-report.js';
import { streamKindOf } from '../cache/values/unkept-classes.js';
import { instance, trueOrFalse } from '../options/checks.js';
import { cacheOption } from '../options/option-checks.js';
import { OptionTable, settingOf } from '../options/option-table.js';
import { isSent, type HttpResponse, whenHeadIsSent } from './http-response.js';

/** Which headers describe the cache in a handler's response. */
export interface CacheHeadersOptions {
  /** Whether a weak `ETag` of the body is sent, and `If-None-Match` answered with 304. @default true */
  etag?: boolean;
  /**
   * `true`: `Cache-Control: private, max-age=<s>` with the time for which the value is still fresh, 0 when it is stale
   * or not stored. A string is sent as it is. A header that is set already (`@Header`) stays.
   * @default true
   */
  cacheControl?: boolean | string;
  /** Whether to send `X-Cache: HIT`, `STALE` or `MISS`; of several reads, the last one in this order. @default true */
  xCache?: boolean;
}

type CacheHeadersSettings = Readonly<Required<CacheHeadersOptions>>;

const setting = settingOf<CacheHeadersSettings>();

const CACHE_HEADERS_OPTIONS = new OptionTable<CacheHeadersOptions, CacheHeadersSettings>(
  cacheOption,
  'option of CacheHeadersInterceptor',
  '',
  { etag: true, cacheControl: true, xCache: true },
  {
    etag: setting('etag', trueOrFalse),
    cacheControl: setting('cacheControl', instance(isCacheControl, 'true, false, or the printable text of the header')),
    xCache: setting('xCache', trueOrFalse),
  },
);

function isCacheControl(value: unknown): value is boolean | string {
  return typeof value === 'boolean' || (typeof value === 'string' && /^[ -~]+$/.test(value));
}

interface HttpRequest {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
}

/**
 * Describes to the client of a GET or HEAD handler what the cache did: `@UseInterceptors(CacheHeadersInterceptor)`, or
 * with options `@UseInterceptors(new CacheHeadersInterceptor({ etag: false }))`. For Express and Fastify.
 *
 * Sums up all cache reads of the handler, including those in the services that it calls. Adds nothing if there are
 * none, if the handler fails, and to streams. Place it above interceptors that change the body, because the `ETag` is
 * made of the body.
 */
// Not @Injectable(): Nest would look for a provider of the options.
export class CacheHeadersInterceptor implements NestInterceptor {
  private readonly settings: CacheHeadersSettings;

  /** @throws CacheConfigError for an option that it cannot take */
  constructor(options: CacheHeadersOptions = {}) {
    this.settings = CACHE_HEADERS_OPTIONS.settings(cacheOption.object('options', options, 'an object of options'));
  }

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    if (context.getType() !== 'http' || Reflect.hasMetadata(SSE_METADATA, context.getHandler())) return next.handle();
    const request = context.switchToHttp().getRequest<HttpRequest>();
    if (request.method !== 'GET' && request.method !== 'HEAD') return next.handle();
    const report = new ReadReport();
    return new Observable((subscriber) =>
      withReadReport(report, () =>
        next
          .handle()
          // Nest answers with the last value of a handler's Observable.
          .pipe(
            takeLast(1),
            map((body: unknown) => this.answer(context, report, body)),
          )
          .subscribe(subscriber),
      ),
    );
  }

  /** The body, or nothing if the client has it already. */
  private answer(context: ExecutionContext, { outcome, remaining = 0 }: ReadReport, body: unknown): unknown {
    const response = context.switchToHttp().getResponse<HttpResponse>();
    if (outcome === undefined || body === response || streamKindOf(body) || isSent(response)) return body;
    if (response.statusCode >= 400) return body;
    const { cacheControl } = this.settings;
    const set = new Map<string, string>();
    // An interceptor above may yet make a failure of it, and so may a body that is no JSON.
    whenHeadIsSent(response, (head) => {
      if (head.status >= 400) for (const [name, value] of set) head.remove(name, value);
    });
    const describe = (name: string, value: string) => {
      set.set(name, value);
      response.header(name, value);
    };
    if (this.settings.xCache) describe('X-Cache', outcome.toUpperCase());
    if (cacheControl !== false && response.getHeader('Cache-Control') === undefined) {
      const told = cacheControl === true ? `private, max-age=${Math.floor(remaining / 1_000)}` : cacheControl;
      describe('Cache-Control', told);
    }
    return this.settings.etag && isBodyAsSent(context, body)
      ? this.answerUnlessFresh(context, response, body, describe)
      : body;
  }

  private answerUnlessFresh(
    context: ExecutionContext,
    response: HttpResponse,
    body: unknown,
    describe: (name: string, value: string) => void,
  ): unknown {
    const { headers } = context.switchToHttp().getRequest<HttpRequest>();
    const present = response.getHeader('ETag');
    const tag = typeof present === 'string' ? present : tagOf(body);
    if (tag === undefined) return body;
    describe('ETag', tag);
    if (response.statusCode >= 300 || !fresh(headers, { etag: tag })) return body;
    response.status(304);
    return undefined;
  }
}

/** `undefined` where JSON has no text for the body: the application may have another way to send it. */
function tagOf(body: unknown): string | undefined {
  try {
    const text = typeof body === 'string' ? body : (JSON.stringify(body) as string | undefined);
    return text === undefined ? undefined : etag(text, { weak: true });
  } catch {
    return undefined;
  }
}

/** Whether the body is sent as it is: not empty, not bytes, and not the input of a view or a redirection. */
function isBodyAsSent(context: ExecutionContext, body: unknown): boolean {
  const handler = context.getHandler();
  return (
    body !== undefined &&
    body !== null &&
    !ArrayBuffer.isView(body) &&
    !Reflect.hasMetadata(RENDER_METADATA, handler) &&
    !Reflect.hasMetadata(REDIRECT_METADATA, handler)
  );
}
