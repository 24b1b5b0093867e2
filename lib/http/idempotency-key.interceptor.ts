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
import { HttpError } from '../errors/http-error.js';
import { IdempotencyHeaderError } from '../errors/idempotency-errors.js';
import { PrimitiveConfigError, PrimitiveKeyError } from '../errors/primitive-errors.js';
import { encodeKeyPart, whyNotAKeyPart } from '../keys/key-part.js';
import { IdempotencyService } from '../primitives/idempotency/idempotency.service.js';
import { answersItself, isSent, hostAndVersion, type HttpResponse } from './http-response.js';
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
    if (answersItself(context.getClass(), context.getHandler().name)) {
      throw notKept(context, 'did not run: it answers by @Res() or @Next()');
    }
    const { headers, fingerprint, run } = this.rules;
    // Kept results have a digest of this form.
    const identity = [pathOf(request), fingerprint(request)].filter((part) => part !== undefined);
    const before = headersOf(response);
    let ran = false;
    try {
      const answer = await this.service.run(key, { ...run, fingerprint: identity }, async () => {
        ran = true;
        const body = await bodyOf(next);
        if (isSent(response)) throw answered(context);
        // What is no data stands for itself, so that the service refuses it.
        if (streamKindOf(body) || typeof body === 'function') return body as KeptResponse;
        return keptResponse(response, headers ?? headersSince(before, response), body);
      });
      if (!ran) repeatResponse(response, answer);
      return answer.body;
    } catch (error) {
      // A kept error has no class of this library.
      if (!ran && !(error instanceof HttpError)) markAsRepeated(response);
      throw error;
    }
  }

  private keyOf(context: ExecutionContext, header: string): string {
    const request = context.switchToHttp().getRequest<IdempotentRequest>();
    const scope = this.rules.scope(request);
    const why = whyNotAKeyPart(scope);
    if (why) throw new PrimitiveKeyError(`Option "scope" returned ${why}; return text that identifies the client`);
    const elsewhere = hostAndVersion(context.getClass(), context.getHandler());
    const route = elsewhere === undefined ? routeOf(request) : `${routeOf(request)}|${elsewhere}`;
    const parts = [String(scope), request.method, route, header];
    return `http:${parts.map(encodeKeyPart).join(':')}`;
  }
}

/** A redirect, for instance: the headers of such an answer, without its body, would make no answer. */
function answered(context: ExecutionContext): PrimitiveConfigError {
  return notKept(context, 'has answered by itself, by the response of @Res({ passthrough: true })');
}

function notKept(context: ExecutionContext, why: string): PrimitiveConfigError {
  return new PrimitiveConfigError(
    `${context.getClass().name}.${context.getHandler().name} ${why}, so that idempotencyKey cannot keep its answer; ` +
      'return the body, and set headers by @Res({ passthrough: true })',
  );
}

/** Nest answers with the last value of a handler's Observable. */
function bodyOf(next: CallHandler): Promise<unknown> {
  return lastValueFrom(next.handle(), { defaultValue: undefined });
}

/** The route in Express or Fastify, such as `/orders/:id`; else the path. */
function routeOf(request: IdempotentRequest): string {
  const { route, routeOptions } = request as IdempotentRequest & {
    route?: { path?: unknown };
    routeOptions?: { url?: unknown };
  };
  const path = route?.path ?? routeOptions?.url;
  return typeof path === 'string' ? path : pathOf(request);
}

function pathOf({ originalUrl }: IdempotentRequest): string {
  return originalUrl.replace(/\?.*$/s, '');
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
