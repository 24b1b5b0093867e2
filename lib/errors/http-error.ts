import { STATUS_CODES } from 'node:http';
import { HttpException } from '@nestjs/common';
import type { LimitedLog } from './limited-log.js';

/** @internal The parts of an error of this library. */
export interface HttpErrorDetails<Code extends string> {
  readonly code: Code;
  readonly status: number;
  /** The text for HTTP clients: fixed, without key, owner or server. */
  readonly publicMessage: string;
  /** The text that the log shows. */
  readonly message: string;
  readonly keys: readonly string[];
  readonly cause?: unknown;
}

/** The text for HTTP clients about an error that they can do nothing about. */
export const INTERNAL = { status: 500, publicMessage: 'Internal server error' } as const;

/** What Nest keeps in an `HttpException`. Loggers that print the properties of an error would show the cause twice. */
const OF_NEST = ['options', 'response', 'status', 'cause', 'errorCode'];
const NOT_SHOWN = { enumerable: false };

const ANSWERED_WITH = new WeakMap<object, HttpError<string>>();

/** The error that is answered with this body, by the filter of Nest. */
export function errorAnsweredWith(body: unknown): HttpError<string> | undefined {
  return typeof body === 'object' && body !== null ? ANSWERED_WITH.get(body) : undefined;
}

/**
 * The base of the errors of locks and cache. An `HttpException`, because Nest 11, Nest 12 and the catch-all filters of
 * applications all answer an `HttpException` with its own status.
 */
export abstract class HttpError<Code extends string> extends HttpException {
  /** Tells the errors apart in a log and in the HTTP body. */
  readonly code: Code;
  /** The names or keys concerned; empty where none was known yet. */
  readonly keys: readonly string[];

  /** @internal */
  protected constructor({ code, status, publicMessage, message, keys, cause }: HttpErrorDetails<Code>) {
    const body = { statusCode: status, error: STATUS_CODES[status], message: publicMessage, code };
    super(body, status, cause === undefined ? {} : { cause });
    ANSWERED_WITH.set(body, this);
    this.code = code;
    this.keys = keys;
    this.message = message;
    for (const name of OF_NEST) if (Object.hasOwn(this, name)) Object.defineProperty(this, name, NOT_SHOWN);
  }

  /** The HTTP status, for filters that look for this property; the same as `getStatus()`. */
  get statusCode(): number {
    return this.getStatus();
  }
}

const logged = new WeakSet<Error>();

/** Logs the error once, although it may pass several places that log; `kind` as for `LimitedLog`. */
export function logOnce(log: Pick<LimitedLog, 'error'>, error: Error, line = error.message, kind?: string): void {
  if (logged.has(error)) return;
  logged.add(error);
  log.error(line, kind);
}
