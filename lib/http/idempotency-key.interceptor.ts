import {
  Inject,
  mixin,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
  type Type,
} from '@nestjs/common';
import { SSE_METADATA } from '@nestjs/common/constants.js';
import { defer, lastValueFrom, type Observable } from 'rxjs';
import { streamKindOf } from '../cache/values/unkept-classes.js';
import { HttpError, logOnce } from '../errors/http-error.js';
import { IdempotencyHeaderError } from '../errors/idempotency-errors.js';
import { PrimitiveConfigError, PrimitiveKeyError } from '../errors/primitive-errors.js';
import { whyNotAKeyPart } from '../keys/key-part.js';
import { NothingDone, endOf, outcomeOf, type End } from '../primitives/idempotency/method-begin.js';
import { IdempotencyService } from '../primitives/idempotency/idempotency.service.js';
import { handlerName, httpName, pathOf, routeOfRequest } from './derived-names.js';
import { HandlerRun, watchHandlers } from './handler-run.js';
import { unawaited } from '../options/option-checks.js';
import { answersItself, type HttpResponse } from './http-response.js';
import {
  idempotencyKeyRules,
  type IdempotencyKeyOptions,
  type IdempotencyKeyRules,
  type IdempotentRequest,
} from './idempotency-key-options.js';
import {
  headersOf,
  headersSince,
  keptResponse,
  markAsRepeated,
  repeatResponse,
  responseOf,
  type KeptResponse,
} from './kept-response.js';

/**
 * Makes an interceptor that answers requests with the same `Idempotency-Key` once:
 * `@UseInterceptors(idempotencyKey({ scope: (request) => request.user.id }))`. A repeat gets the status, body and
 * headers of the first answer, and `Idempotent-Replayed: true`. For Express and Fastify, after
 * draft-ietf-httpapi-idempotency-key-header-07.
 *
 * Answers 400 for a missing (`required`) or invalid header, 409 while the first request runs, and 422 for a key that
 * was used for another request. Place it above interceptors that change the body.
 *
 * @throws PrimitiveConfigError for an option that it cannot take
 */
export function idempotencyKey(options: IdempotencyKeyOptions): Type<NestInterceptor> {
  const rules = idempotencyKeyRules(options);

  class Configured extends IdempotencyKeyInterceptor {
    constructor(@Inject(IdempotencyService) service: IdempotencyService) {
      super(service, rules);
      const lack = service.backends.lackOfApplication('idempotencyKey');
      if (lack !== undefined) throw new PrimitiveConfigError(lack);
      if (service.modules) watchHandlers(service.modules);
    }
  }
  return mixin(Configured);
}

/** The key under which a request is answered. */
const KEYS = new WeakMap<object, string>();

class IdempotencyKeyInterceptor implements NestInterceptor {
  constructor(
    private readonly service: IdempotencyService,
    private readonly rules: IdempotencyKeyRules,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    if (context.getType() !== 'http' || Reflect.hasMetadata(SSE_METADATA, context.getHandler())) return next.handle();
    const request = context.switchToHttp().getRequest<IdempotentRequest>();
    if (!this.rules.methods.has(request.method)) return next.handle();
    const header = idempotencyKeyOf(request.headers);
    if (header !== undefined) return defer(() => this.answer(context, this.keyOf(context, header), next));
    if (this.rules.required) throw new IdempotencyHeaderError('This request needs an Idempotency-Key header.');
    return next.handle();
  }

  private async answer(context: ExecutionContext, key: string, next: CallHandler): Promise<unknown> {
    const http = context.switchToHttp();
    const [request, response] = [http.getRequest<IdempotentRequest>(), http.getResponse<HttpResponse>()];
    // An interceptor of the controller or the application, perhaps with another scope, answers the request already.
    const around = this.service.current()?.key;
    if (around !== undefined && around === KEYS.get(request)) return bodyOf(next);
    KEYS.set(request, key);
    const name = handlerName(context.getClass(), context.getHandler());
    if (answersItself(context.getClass(), name)) {
      throw notKept(context, 'did not run: it answers by @Res() or @Next()');
    }
    const { fingerprint, run } = this.rules;
    // Kept results have a digest of this form.
    const identity = [pathOf(request), unawaited(fingerprint(request))].filter((part) => part !== undefined);
    const handlerRun = new HandlerRun(context.getClass(), name, response);
    return new Promise((resolve, reject) => {
      const answer = new EarlyAnswer(resolve, reject);
      let ran = false;
      const attempt = () => {
        ran = true;
        return handlerRun.around(() => this.attempt(context, handlerRun, next, answer));
      };
      this.service
        .run(key, { ...run, fingerprint: identity }, attempt)
        .then(
          (kept) => {
            if (!ran) repeatResponse(response, kept);
            resolve(kept.body);
          },
          (error: unknown) => {
            // A kept error has no class of this library.
            if (!ran && !(error instanceof HttpError)) markAsRepeated(response);
            // Nobody else tells of it once the answer is out.
            const isOut = answer.given || handlerRun.isForeign;
            if (isOut && error instanceof HttpError) logOnce(this.service.backends.logger, error);
            reject(error);
          },
        )
        .catch(reject);
    });
  }

  /**
   * What is kept of the run. It lasts until the handler itself has ended; where interceptors below answer before that,
   * their answer goes out at once, and the value of the handler is kept.
   */
  private async attempt(
    context: ExecutionContext,
    run: HandlerRun,
    next: CallHandler,
    answer: EarlyAnswer,
  ): Promise<KeptResponse> {
    const before = headersOf(context.switchToHttp().getResponse<HttpResponse>());
    const told = await endOf(bodyOf(next));
    // The service takes it for what it is.
    if (!run.begun) return new NothingDone(() => ({ body: outcomeOf(told) })) as unknown as KeptResponse;
    if (!run.goesOn) return this.kept(context, run, before, outcomeOf(told));
    // Another call of the handler, by a retry below, may have made the answer.
    const isItsOwn = run.hasValue && 'value' in told;
    answer.give(told);
    const end = await run.leave();
    return this.kept(context, run, before, outcomeOf(isItsOwn || !end ? told : end), true);
  }

  private kept(
    context: ExecutionContext,
    run: HandlerRun,
    before: ReadonlyMap<string, string>,
    body: unknown,
    isApart = false,
  ): KeptResponse {
    const response = context.switchToHttp().getResponse<HttpResponse>();
    if (!isApart && run.hasAnswered) throw answered(context);
    // What is no data stands for itself, so that the service refuses it.
    if (streamKindOf(body) || typeof body === 'function') return body as KeptResponse;
    const { headers } = this.rules;
    if (isApart || run.isForeign) return responseOf(run.given, headers, body);
    return keptResponse(run.given.status, response, headers ?? headersSince(before, response), body);
  }

  private keyOf(context: ExecutionContext, header: string): string {
    const request = context.switchToHttp().getRequest<IdempotentRequest>();
    const scope = unawaited(this.rules.scope(request));
    const why = whyNotAKeyPart(scope);
    if (why) throw new PrimitiveKeyError(`Option "scope" returned ${why}; return text that identifies the client`);
    const route = routeOfRequest(
      request,
      context.getClass(),
      context.getHandler(),
      this.service.config?.getVersioning(),
    );
    return httpName(this.service.backends, [String(scope), request.method, route, header]);
  }
}

/** An answer that goes out before the attempt has ended. */
class EarlyAnswer {
  given = false;

  constructor(
    private readonly resolve: (body: unknown) => void,
    private readonly reject: (error: unknown) => void,
  ) {}

  give(end: End): void {
    this.given = true;
    if ('error' in end) this.reject(end.error);
    else this.resolve(end.value);
  }
}

/** A redirect, for instance: the headers of such an answer, without its body, would make no answer. */
function answered(context: ExecutionContext): PrimitiveConfigError {
  return notKept(context, 'has answered by itself, by the response of @Res({ passthrough: true })');
}

function notKept(context: ExecutionContext, why: string): PrimitiveConfigError {
  return new PrimitiveConfigError(
    `${context.getClass().name}.${handlerName(context.getClass(), context.getHandler())} ${why}, so that idempotencyKey cannot keep its answer; ` +
      'return the body, and set headers by @Res({ passthrough: true })',
  );
}

/** Nest answers with the last value of a handler's Observable. */
function bodyOf(next: CallHandler): Promise<unknown> {
  return lastValueFrom(next.handle(), { defaultValue: undefined });
}

const HEADER = 'idempotency-key';

/** As Stripe limits it. */
const LONGEST = 255;

/** A string of RFC 9651 (structured fields), as the IETF draft has it, or the bare text that most clients send. */
const QUOTED = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])+)"$/;
const BARE = /^[\x21\x23-\x2b\x2d-\x7e]+$/;

/**
 * The key that a request names; `undefined` without the header. A key in quotes and the same text without them are one
 * key.
 *
 * @throws IdempotencyHeaderError for a header that cannot be read
 */
function idempotencyKeyOf(headers: Readonly<Record<string, unknown>>): string | undefined {
  const given = headers[HEADER];
  if (given === undefined) return undefined;
  const text = typeof given === 'string' ? given.trim() : '';
  const quoted = QUOTED.exec(text)?.[1];
  const key = quoted === undefined ? BARE.exec(text)?.[0] : quoted.replace(/\\(["\\])/g, '$1');
  if (key !== undefined && key.length <= LONGEST) return key;
  throw new IdempotencyHeaderError(
    `Send one Idempotency-Key header with 1 to ${LONGEST} visible ASCII characters, such as a UUID.`,
  );
}
