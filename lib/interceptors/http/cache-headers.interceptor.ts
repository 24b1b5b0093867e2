import type { IncomingHttpHeaders } from 'node:http';
import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common';
import { REDIRECT_METADATA, RENDER_METADATA, SSE_METADATA } from '@nestjs/common/constants.js';
import etag from 'etag';
import fresh from 'fresh';
import { map, Observable, takeLast } from 'rxjs';
import { ReadReport, withReadReport } from '../../cache/read/read-report.js';
import { streamKindOf } from '../streams.js';

/** What the answer of a handler says of the cache. */
export interface CacheHeadersOptions {
  /** Whether a weak `ETag` of the body is sent, and `If-None-Match` answered with 304. @default true */
  etag?: boolean;
  /**
   * `true`: `Cache-Control: private, max-age=<s>`, with the time that the value is still fresh, 0 when it is stale or
   * not stored. A string is sent as it is. One that is set already (`@Header`) stays.
   * @default true
   */
  cacheControl?: boolean | string;
  /** Whether `X-Cache: HIT`, `STALE` or `MISS` is sent; of several reads the last in this order. @default true */
  xCache?: boolean;
}

interface HttpRequest {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
}

/** What the responses of Express and the replies of Fastify have in common. */
interface HttpResponse {
  readonly statusCode: number;
  /** Of Express. */
  readonly headersSent?: boolean;
  /** Of Fastify. */
  readonly sent?: boolean;
  getHeader(name: string): unknown;
  header(name: string, value: string): unknown;
  status(code: number): unknown;
}

/**
 * Tells the client of a GET or HEAD handler what the cache did for it: `@UseInterceptors(CacheHeadersInterceptor)`, or
 * with options, `@UseInterceptors(new CacheHeadersInterceptor({ etag: false }))`. On Express and on Fastify.
 *
 * It speaks of all reads of the cache that the handler makes, also in the services it calls, and adds nothing where it
 * makes none, where it fails, and to a stream. It goes above other interceptors that change the body, which the `ETag`
 * is made of.
 */
// Not @Injectable(): Nest would look for a provider of the options.
export class CacheHeadersInterceptor implements NestInterceptor {
  private readonly etag: boolean;
  private readonly cacheControl: boolean | string;
  private readonly xCache: boolean;

  constructor(options: CacheHeadersOptions = {}) {
    this.etag = options.etag ?? true;
    this.cacheControl = options.cacheControl ?? true;
    this.xCache = options.xCache ?? true;
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
          // Of a handler's Observable, Nest answers the last value.
          .pipe(
            takeLast(1),
            map((body: unknown) => this.answer(context, report, body)),
          )
          .subscribe(subscriber),
      ),
    );
  }

  /** The body, or nothing where the client has it already. */
  private answer(context: ExecutionContext, { outcome, remaining = 0 }: ReadReport, body: unknown): unknown {
    const response = context.switchToHttp().getResponse<HttpResponse>();
    if (outcome === undefined || body === response || streamKindOf(body) || isSent(response)) return body;
    if (response.statusCode >= 400) return body;
    if (this.xCache) response.header('X-Cache', outcome.toUpperCase());
    if (this.cacheControl !== false && response.getHeader('Cache-Control') === undefined) {
      const told = this.cacheControl === true ? `private, max-age=${Math.floor(remaining / 1_000)}` : this.cacheControl;
      response.header('Cache-Control', told);
    }
    return this.etag && isBodyAsSent(context, body) ? this.answerUnlessFresh(context, response, body) : body;
  }

  private answerUnlessFresh(context: ExecutionContext, response: HttpResponse, body: unknown): unknown {
    const { headers } = context.switchToHttp().getRequest<HttpRequest>();
    const present = response.getHeader('ETag');
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const tag = typeof present === 'string' ? present : etag(text, { weak: true });
    response.header('ETag', tag);
    if (response.statusCode >= 300 || !fresh(headers, { etag: tag })) return body;
    response.status(304);
    return undefined;
  }
}

/** Neither empty, nor bytes, nor what a view or a redirection is made of. */
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

/** A handler with `@Res()` may have answered itself. */
function isSent({ headersSent, sent }: HttpResponse): boolean {
  return headersSent ?? sent ?? false;
}
