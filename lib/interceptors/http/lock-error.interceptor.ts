import { Inject, Injectable, type CallHandler, type ExecutionContext, type NestInterceptor } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { catchError, type Observable } from 'rxjs';
import { CacheError } from '../../errors/cache-errors.js';
import { LockBackends } from '../../lock/backend/lock-backends.js';
import { LockError, LockTimeoutError } from '../../errors/lock-errors.js';
import { logOnce } from '../../errors/error-log.js';

/** In seconds. */
const LONGEST_RETRY_AFTER = 30;

/**
 * What Nest leaves undone for our errors when they leave a handler: a busy answer says when to come back
 * (`Retry-After`), and a 5xx is logged, once.
 *
 * An interceptor and not a filter, because the application's own filter, which would hide ours, still answers the
 * error.
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
        if ((error instanceof LockError || error instanceof CacheError) && error.statusCode >= 500)
          logOnce(this.backends.logger, error);
        if (error instanceof LockTimeoutError && context.getType() === 'http') this.sayWhenToRetry(context, error);
        throw error;
      }),
    );
  }

  private sayWhenToRetry(context: ExecutionContext, error: LockTimeoutError): void {
    const adapter = this.host.httpAdapter;
    const response: unknown = context.switchToHttp().getResponse();
    if (adapter.isHeadersSent(response)) return;
    adapter.setHeader(response, 'Retry-After', String(retryAfter(error)));
  }
}

/**
 * How long it may take, in s: what was busy for as long as the caller waited may well be so for as long again, and no
 * longer than the lease, unless that is renewed.
 */
function retryAfter({ waited, remaining }: LockTimeoutError): number {
  const seconds = Math.round(Math.min(waited, remaining) / 1_000);
  return Math.min(LONGEST_RETRY_AFTER, Math.max(1, seconds));
}
