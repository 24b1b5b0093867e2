import type { IncomingHttpHeaders } from 'node:http';
import { HttpException } from '@nestjs/common';
import { streamKindOf } from '../cache/values/unkept-classes.js';
import { HttpError } from '../errors/http-error.js';
import { PrimitiveConfigError } from '../errors/primitive-errors.js';
import { callable, instance, trueOrFalse } from '../options/checks.js';
import { primitiveOption } from '../options/option-checks.js';
import {
  idempotencySettings,
  type IdempotencyOptions,
  type IdempotentRunOptions,
} from '../primitives/idempotency/idempotency-options.js';
import { RESPONSES, WrittenBody, type KeptResponse } from './kept-response.js';

/** The common part of Express and Fastify requests. */
export interface IdempotentRequest {
  readonly method: string;
  readonly originalUrl: string;
  readonly headers: IncomingHttpHeaders;
  readonly body?: unknown;
}

/** A function of the request. Declared as a method, so that its parameter may be narrower. */
type OfRequest<Answer> = { of(request: IdempotentRequest): Answer }['of'];

/** Which requests are answered once, and what is kept of the answers. */
export interface IdempotencyKeyOptions extends Omit<IdempotencyOptions, 'serializer'> {
  /**
   * Whose key it is: text that identifies the user or tenant, such as `(request) => request.user.id`. Two clients that
   * send the same key have different keys then. Return a constant where all clients may share answers.
   */
  scope: OfRequest<string | number>;
  /** Whether a request without the header is refused, with 400. Otherwise its handler runs as ever. @default false */
  required?: boolean;
  /** The methods whose requests may have a key. The header of others is ignored. @default ['POST', 'PATCH'] */
  methods?: readonly string[];
  /**
   * The response headers that are kept and repeated.
   * @default those that the handler sets, but not `Set-Cookie`
   */
  headers?: readonly string[];
  /**
   * What makes the request, besides its path: data of which a digest is compared.
   * @default the query of the URL, the media type and the parsed body; a body that no parser has read is refused, with
   * `PrimitiveConfigError`, before the handler runs
   */
  fingerprint?: OfRequest<unknown>;
  /** As in `IdempotencyOptions`. @default 'throw': 409 with `Retry-After` */
  onRunning?: 'wait' | 'throw';
  /**
   * As in `IdempotencyOptions`.
   * @default an `HttpException` with a status from 400 to 499, except 401, 408, 423, 425, 429, and errors of this
   * library
   */
  keepErrors?: (error: unknown) => boolean;
}

/** `IdempotencyKeyOptions` checked and complete. */
export interface IdempotencyKeyRules {
  readonly scope: OfRequest<unknown>;
  readonly required: boolean;
  readonly methods: ReadonlySet<string>;
  /** `undefined` for those that the handler sets. */
  readonly headers: readonly string[] | undefined;
  readonly fingerprint: OfRequest<unknown>;
  readonly run: IdempotentRunOptions;
}

const METHODS = ['POST', 'PATCH'];

/** After these the client is meant to send the request again, perhaps with other credentials. */
const TRANSIENT = new Set([401, 408, 423, 425, 429]);

const names = instance(
  (value): value is readonly string[] => Array.isArray(value) && value.every((each) => typeof each === 'string'),
  'an array of names',
);

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function idempotencyKeyRules(options: IdempotencyKeyOptions): IdempotencyKeyRules {
  primitiveOption.object('options', options, 'an object of options with a scope');
  const { scope, required = false, methods = METHODS, headers, fingerprint = queryAndBody, ...run } = options;
  callable('a function of the request that identifies the client')(scope, 'scope', primitiveOption);
  callable()(fingerprint, 'fingerprint', primitiveOption);
  if ('serializer' in run || 'signal' in run) {
    throw primitiveOption.conflict('idempotencyKey takes no "serializer" and no "signal"; remove it');
  }
  idempotencySettings(run);
  const { revive } = run;
  return {
    scope,
    required: trueOrFalse(required, 'required', primitiveOption),
    methods: new Set(names(methods, 'methods', primitiveOption).map((method) => method.toUpperCase())),
    headers: headers === undefined ? undefined : names(headers, 'headers', primitiveOption),
    fingerprint,
    run: {
      onRunning: 'throw',
      keepErrors: isFinal,
      ...run,
      serializer: RESPONSES,
      ...(revive && { revive: (stored) => revivedResponse(stored as KeptResponse, revive) }),
    },
  };
}

/** What requests have besides, of Node, Nest (`rawBody`) and parsers of forms. */
interface ReceivedRequest extends IdempotentRequest {
  readonly httpVersionMajor?: number;
  /** Of HTTP/2. */
  readonly stream?: { readonly endAfterHeaders?: boolean };
  /** Of Fastify. */
  readonly raw?: ReceivedRequest;
  readonly rawBody?: unknown;
  readonly file?: unknown;
  readonly files?: unknown;
}

function queryAndBody(request: ReceivedRequest): unknown {
  const query = /\?.*$/s.exec(request.originalUrl)?.[0];
  const { body, headers, rawBody } = request;
  const type = mediaType(headers);
  if (!hasBody(request.raw ?? request, headers)) return { query, body };
  const files = filesOf(request);
  if (files !== 'unread' && (files || !isUnread(body, type, headers))) return { query, type, body, files };
  if (rawBody instanceof Uint8Array && rawBody.length > 0) return { query, type, rawBody };
  throw new PrimitiveConfigError(
    `The body of a request with an Idempotency-Key (${type ?? 'without a Content-Type'}) was read by no parser, so that ` +
      'a repeat cannot be told from another request; give idempotencyKey a "fingerprint", such as of the header ' +
      'Content-Digest, or the application a parser for it, which keeps files in memory and runs above idempotencyKey',
  );
}

/** Without parameters: the boundary of a form is another one each time. */
function mediaType({ 'content-type': type }: IncomingHttpHeaders): string | undefined {
  return type?.split(';', 1)[0]?.trim().toLowerCase();
}

function hasBody({ httpVersionMajor = 1, stream }: ReceivedRequest, headers: IncomingHttpHeaders): boolean {
  const length = headers['content-length'];
  if (length === undefined && httpVersionMajor > 1) return stream?.endAfterHeaders !== true;
  return headers['transfer-encoding'] !== undefined || Number(length ?? 0) > 0;
}

/** The files of a form, as multer gives them: `undefined` without any, 'unread' where their content is elsewhere. */
function filesOf({ file, files }: ReceivedRequest): unknown {
  const all = [file, ...(typeof files === 'object' && files !== null ? Object.values(files) : [])].flat();
  const given = all.filter((each) => typeof each === 'object' && each !== null) as Record<string, unknown>[];
  if (given.length === 0) return undefined;
  if (!given.every(({ buffer }) => buffer instanceof Uint8Array)) return 'unread';
  return given.map(({ fieldname, originalname, mimetype, buffer }) => ({ fieldname, originalname, mimetype, buffer }));
}

/** Whether no parser has made the body. Express may leave an empty object, which JSON and forms can be as well. */
function isUnread(body: unknown, type: string | undefined, headers: IncomingHttpHeaders): boolean {
  if (body === undefined || body === null) return type === undefined || body === undefined || !IS_JSON.test(type);
  if (typeof body !== 'object' || body instanceof Uint8Array) return false;
  if (streamKindOf(body)) return true;
  if (Array.isArray(body) || Object.keys(body).length > 0) return false;
  if (type === 'application/json' || type === 'application/x-www-form-urlencoded') return false;
  // Parsers of JSON may not know the type, but two bytes are an empty object.
  return !IS_JSON.test(type ?? '') || headers['content-length'] !== '2';
}

const IS_JSON = /[/+]json$/;

/** Whether the answer is final: the client would get it again. */
function isFinal(error: unknown): boolean {
  if (!(error instanceof HttpException) || error instanceof HttpError) return false;
  const status = error.getStatus();
  return status >= 400 && status < 500 && !TRANSIENT.has(status);
}

function revivedResponse(stored: KeptResponse, revive: (body: unknown) => unknown): KeptResponse {
  const { body } = stored;
  return { ...stored, body: revive(body instanceof WrittenBody ? body.value : body) };
}
