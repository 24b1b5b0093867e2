import * as nest from '@nestjs/common';
import { HttpException } from '@nestjs/common';

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
export function keptErrorOf(error: unknown): KeptError {
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
export function errorOf(kept: KeptError): unknown {
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
