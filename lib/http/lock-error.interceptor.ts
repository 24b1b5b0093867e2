import { Inject, Injectable, type CallHandler, type ExecutionContext, type NestInterceptor } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { catchError, type Observable } from 'rxjs';
import { HttpError, logOnce } from '../errors/http-error.js';
import { LockTimeoutError } from '../errors/lock-errors.js';
import { PrimitiveError } from '../errors/primitive-errors.js';
import { LockBackends } from '../lock/line/lock-backends.js';

/** In seconds. */
const LONGEST_RETRY_AFTER = 30;

/**
 * Does what Nest leaves undone when our errors leave a handler: answers when to retry (`Retry-After`) where that is
 * known, and logs a 5xx once.
 *
 * An interceptor rather than a filter: it does not replace the application's own filter, which still answers the error.
 */
@Injectable()
export class LockErrorInterceptor implements NestInterceptor {
  constructor(
    @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
    @Inject(LockBackends) private readonly backends: LockBackends,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(
      catchError((error: unknown) => {
        if (error instanceof HttpError && error.statusCode >= 500) logOnce(this.backends.logger, error);
        const seconds = retryAfter(error);
        if (seconds !== undefined && context.getType() === 'http') this.sayWhenToRetry(context, seconds);
        throw error;
      }),
    );
  }

  private sayWhenToRetry(context: ExecutionContext, seconds: number): void {
    const adapter = this.host.httpAdapter;
    const response: unknown = context.switchToHttp().getResponse();
    if (adapter.isHeadersSent(response)) return;
    adapter.setHeader(response, 'Retry-After', String(seconds));
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
