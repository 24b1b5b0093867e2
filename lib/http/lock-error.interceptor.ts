import {
  HttpException,
  Inject,
  Injectable,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { SSE_METADATA } from '@nestjs/common/constants.js';
import { HttpAdapterHost } from '@nestjs/core';
import { catchError, type Observable } from 'rxjs';
import { errorAnsweredWith, HttpError, logOnce } from '../errors/http-error.js';
import { LockTimeoutError } from '../errors/lock-errors.js';
import { PrimitiveError } from '../errors/primitive-errors.js';
import { LockBackends } from '../lock/line/lock-backends.js';
import { rawOf, whenHeadIsSent, type HttpResponse } from './http-response.js';

/** In seconds. */
const LONGEST_RETRY_AFTER = 30;

/**
 * Does what Nest leaves undone when our errors leave a handler: answers when to retry (`Retry-After`) where that is
 * known, logs a 5xx once, and keeps the text for the log out of a stream of events.
 *
 * An interceptor rather than a filter: it does not replace the application's own filter, which still answers the error.
 */
@Injectable()
export class LockErrorInterceptor implements NestInterceptor, OnApplicationBootstrap {
  constructor(
    @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
    @Inject(LockBackends) private readonly backends: LockBackends,
  ) {}

  /**
   * Guards and middleware run before interceptors. Their errors are known where the filter of Nest answers them.
   * Another filter answers in its own way: then what this interceptor does in handlers remains.
   */
  onApplicationBootstrap(): void {
    // An application context has no adapter.
    const adapter = this.host.httpAdapter as HttpAdapterHost['httpAdapter'] | undefined;
    if (typeof adapter?.reply !== 'function') return;
    const reply = adapter.reply.bind(adapter);
    adapter.reply = (response: unknown, body: unknown, status?: number) => {
      const error = errorAnsweredWith(body);
      if (error) this.tell(error, response);
      return reply(response, body, status);
    };
  }

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(
      catchError((error: unknown) => {
        const response: unknown = context.getType() === 'http' ? context.switchToHttp().getResponse() : undefined;
        if (!(error instanceof HttpError)) throw error;
        this.tell(error, response);
        throw isBegunEvents(context, response) ? new PublicError(error) : error;
      }),
    );
  }

  private tell(error: HttpError<string>, response: unknown): void {
    if (error.statusCode >= 500) logOnce(this.backends.logger, error);
    const seconds = retryAfter(error);
    const adapter = this.host.httpAdapter;
    if (seconds === undefined || response === undefined || adapter.isHeadersSent(response)) return;
    if (adapter.getHeader?.(response, 'Retry-After') === undefined) {
      adapter.setHeader(response, 'Retry-After', String(seconds));
      // An interceptor outside of this one may have tried again, or answered something else.
      whenHeadIsSent(response as HttpResponse, (head) => {
        if (head.status < 400) head.remove('Retry-After', String(seconds));
      });
    }
  }
}

/** Whether it is the answer of `@Sse`, and has begun: then Nest sends the message of an error as an event. */
function isBegunEvents(context: ExecutionContext, response: unknown): boolean {
  if (response === undefined || !Reflect.hasMetadata(SSE_METADATA, context.getHandler())) return false;
  return rawOf(response as HttpResponse).headersSent;
}

/** An error with the text for clients as its message. */
class PublicError extends HttpException {
  readonly code: string;

  constructor(error: HttpError<string>) {
    super(error.getResponse(), error.getStatus(), { cause: error });
    this.name = error.name;
    this.code = error.code;
  }
}

/** The `Retry-After` of an error, in seconds. */
function retryAfter(error: unknown): number | undefined {
  if (error instanceof LockTimeoutError) return retryAfterBusy(error);
  if (error instanceof PrimitiveError && error.retryAfter !== undefined) return Math.ceil(error.retryAfter / 1_000);
  return undefined;
}

/**
 * How many seconds to wait: a lock that was busy while the caller waited may be busy as long again, but no longer than
 * its lease, unless that is renewed.
 */
function retryAfterBusy({ waited, remaining }: LockTimeoutError): number {
  const seconds = Math.round(Math.min(waited, remaining) / 1_000);
  return Math.min(LONGEST_RETRY_AFTER, Math.max(1, seconds));
}
