import { messageOf } from '../../errors/limited-log.js';
import * as nest from '@nestjs/common';
import { HttpException } from '@nestjs/common';
import { typedSerializer } from '../../cache/values/envelope.js';
import { streamKindOf, type UnkeptClasses } from '../../cache/values/unkept-classes.js';
import type { IdempotencyRecord, IdempotencyState } from '../../contracts/primitive-stores.js';
import { IdempotencyResultError } from '../../errors/idempotency-errors.js';
import type { IdempotencySettings } from './idempotency-options.js';

/** A result in the form that is kept. */
export interface Result {
  readonly state: Exclude<IdempotencyState, 'running'>;
  readonly payload: string | Buffer;
}

/** How results are written and read. */
type Form = Pick<IdempotencySettings, 'serializer' | 'revive' | 'maxBytes'>;

const errors = typedSerializer();

/** The value of a method in the form that is kept: `unkept`, with the reason, where it has none. */
export function resultOf(key: string, value: unknown, form: Form, classes: UnkeptClasses): Result {
  if (value === undefined) return { state: 'undefined', payload: '' };
  const stream = streamKindOf(value);
  if (stream) return unkept(`it returned ${stream}, which can be read only once; return its content`);
  if (typeof value === 'function') return unkept('it returned a function, which cannot be kept; return data');
  try {
    classes.look(key, value, form.revive);
    return bounded('value', form.serializer.serialize(value), form.maxBytes);
  } catch (error) {
    return unkept(`its result cannot be serialized (${messageOf(error)})`);
  }
}

/** The error of a method in the form that is kept. */
export function errorResultOf(error: unknown, { maxBytes }: Form): Result {
  try {
    return bounded('error', errors.serialize(keptErrorOf(error)), maxBytes);
  } catch (problem) {
    return unkept(`its error cannot be serialized (${messageOf(problem)})`);
  }
}

/**
 * The value that was kept for repeats; `undefined` while there is none.
 *
 * @throws the kept error
 * @throws IdempotencyResultError when the result could not be kept, or cannot be read
 */
export function answerOf(key: string, { state, payload }: IdempotencyRecord, form: Form): Answer | undefined {
  switch (state) {
    case 'running':
      return undefined;
    case 'undefined':
      return { value: undefined };
    case 'value':
      return { value: readable(key, () => revived(form.serializer.deserialize(payload), form)) };
    case 'error':
      throw readable(key, () => errorOf(errors.deserialize(payload) as ReturnType<typeof keptErrorOf>));
    default:
      throw unkeptError(key, payload);
  }
}

/** What a repeat gets. */
export interface Answer {
  readonly value: unknown;
}

export function unkeptError(key: string, why: string | Buffer): IdempotencyResultError {
  return new IdempotencyResultError(key, { why: why.toString(), mayRunAgain: false });
}

function unkept(why: string): Result {
  return { state: 'unkept', payload: why };
}

function bounded(state: 'value' | 'error', payload: string | Buffer, maxBytes: number): Result {
  const size = Buffer.byteLength(payload);
  if (size <= maxBytes) return { state, payload };
  return unkept(`its result has ${size} bytes, more than maxBytes (${maxBytes}); return less, or raise maxBytes`);
}

function revived(stored: unknown, { revive }: Form): unknown {
  return revive ? revive(stored) : stored;
}

function readable<T>(key: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    const why = `its kept result cannot be read (${messageOf(cause)})`;
    throw new IdempotencyResultError(key, { why, mayRunAgain: false, cause });
  }
}

interface KeptHttpError {
  readonly status: number;
  readonly body: string | object;
  readonly name: string;
  readonly message: string;
}

/** What is kept of an error. */
type KeptError =
  | KeptHttpError
  | { readonly name: string; readonly message: string; readonly code?: string | number }
  | { readonly thrown: unknown };

/** What to keep of an error: status and body of an `HttpException`; name, message and `code` of any other. */
function keptErrorOf(error: unknown): KeptError {
  if (!(error instanceof Error)) return { thrown: error };
  const { name, message } = error;
  if (error instanceof HttpException) return { status: error.getStatus(), body: error.getResponse(), name, message };
  const { code } = error as { code?: unknown };
  return { name, message, ...((typeof code === 'string' || typeof code === 'number') && { code }) };
}

/**
 * The error for repeats: an `HttpException` or an `Error`, whatever its class was. An error of a class of Nest, such as
 * `NotFoundException`, keeps it, so that exception filters answer repeats, too.
 */
function errorOf(kept: KeptError): unknown {
  if ('thrown' in kept) return kept.thrown;
  const { name, message } = kept;
  if ('status' in kept) return Object.assign(httpErrorOf(kept), { name, message });
  return Object.assign(new Error(message), { name, ...(kept.code !== undefined && { code: kept.code }) });
}

function httpErrorOf({ status, body, name }: KeptHttpError): HttpException {
  const Class: unknown = Reflect.get(nest, name);
  // A class of Nest makes an object of a text.
  const error = isAnswerClass(Class) && typeof body === 'object' ? new Class(body) : undefined;
  return error?.getStatus() === status ? error : new HttpException(body, status);
}

/** Whether it is one of Nest's own classes of answers, such as `NotFoundException`. */
function isAnswerClass(value: unknown): value is new (body: object) => HttpException {
  return typeof value === 'function' && value.prototype instanceof HttpException;
}
