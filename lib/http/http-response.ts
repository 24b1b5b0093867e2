import type { ServerResponse } from 'node:http';
import { RESPONSE_PASSTHROUGH_METADATA, ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';

/** What the library has to know of a response and of the handler that answers: on Express and Fastify alike. */

/** The value of a response header. */
type HeaderValue = number | string | readonly string[];

/** The common part of Express responses and Fastify replies. */
export interface HttpResponse {
  readonly statusCode: number;
  /** In Express. */
  readonly headersSent?: boolean;
  /** In Fastify. */
  readonly sent?: boolean;
  getHeader(name: string): HeaderValue | undefined;
  /** A copy, with names in lower case. */
  getHeaders(): Readonly<Record<string, HeaderValue | undefined>>;
  header(name: string, value: string | string[]): unknown;
  status(code: number): unknown;
}

/** Whether a handler with `@Res()` has answered already. */
export function isSent({ headersSent, sent }: HttpResponse): boolean {
  return headersSent ?? sent ?? false;
}

/** Nest describes a parameter under its type and index. */
const TAKES_RESPONSE = new RegExp(`^(?:${RouteParamtypes.RESPONSE}|${RouteParamtypes.NEXT}):`);

/**
 * Whether a handler answers by `@Res()` or `@Next()` itself. Nest then sends nothing, also if an interceptor returns a
 * body in the place of the handler, so the request would never be answered.
 */
export function answersItself(controller: object, handler: string | symbol): boolean {
  if (Reflect.getMetadata(RESPONSE_PASSTHROUGH_METADATA, controller, handler)) return false;
  const parameters = (Reflect.getMetadata(ROUTE_ARGS_METADATA, controller, handler) ?? {}) as object;
  return Object.keys(parameters).some((key) => TAKES_RESPONSE.test(key));
}

/** They begin an answer, and may send it later: Fastify when its hooks have run, Express when a file is read. */
const SENDING = ['send', 'sendFile', 'render', 'view'];

/** What a function does in the place of a handler that answers by `@Res()` or `@Next()`. */
export class OwnAnswer {
  /** The arguments of the handler, for the function. */
  readonly args: readonly unknown[];
  private begun = false;
  private readonly response: HttpResponse | undefined;

  constructor(controller: object, handler: string | symbol, args: readonly unknown[]) {
    const given = [...args];
    const parameters = (Reflect.getMetadata(ROUTE_ARGS_METADATA, controller, handler) ?? {}) as object;
    for (const key of Object.keys(parameters)) {
      const [type, index] = key.split(':').map(Number) as [number, number];
      const value = args[index];
      if (type === (RouteParamtypes.RESPONSE as number)) this.response = value as HttpResponse;
      if (type === (RouteParamtypes.NEXT as number)) given[index] = this.noting(value);
    }
    this.args = given;
    for (const method of this.response ? SENDING : []) {
      const sending: unknown = Reflect.get(this.response as object, method);
      if (typeof sending !== 'function') continue;
      Object.defineProperty(this.response, method, { configurable: true, writable: true, value: this.noting(sending) });
    }
  }

  /** Whether the request is being answered, or was left to the next handler. */
  get isGiven(): boolean {
    return this.begun || (this.response !== undefined && isSent(this.response));
  }

  private noting(called: unknown): unknown {
    if (typeof called !== 'function') return called;
    const note = (): void => void (this.begun = true);
    return function (this: unknown, ...args: unknown[]): unknown {
      note();
      return Reflect.apply(called, this, args);
    };
  }
}

/** The response of Node below it: that of Fastify is a reply. */
export function rawOf(response: HttpResponse): ServerResponse {
  return (response as HttpResponse & { readonly raw?: ServerResponse }).raw ?? (response as unknown as ServerResponse);
}

/** The head of an answer, just before it is sent. */
interface AnswerHead {
  readonly status: number;
  /** Removes a header that still has this value: a filter may have given it another one. */
  remove(header: string, value: string | readonly string[]): void;
}

/** Calls it when the answer is sent, by whomever, and what it is to be is known. */
export function whenHeadIsSent(response: HttpResponse, tell: (head: AnswerHead) => void): void {
  const raw = rawOf(response);
  const given = Reflect.get(raw, 'writeHead') as (this: ServerResponse, ...args: unknown[]) => ServerResponse;
  const writeHead = function (this: ServerResponse, status: number, ...rest: unknown[]) {
    const remove: AnswerHead['remove'] = (header, value) => {
      const isSame = (present: unknown) => String(present) === String(value);
      if (isSame(raw.getHeader(header))) raw.removeHeader(header);
      // Fastify gives its headers here.
      for (const headers of rest) {
        if (typeof headers !== 'object' || headers === null || Array.isArray(headers)) continue;
        for (const [name, present] of Object.entries(headers)) {
          if (name.toLowerCase() === header.toLowerCase() && isSame(present)) Reflect.deleteProperty(headers, name);
        }
      }
    };
    if (!raw.headersSent) tell({ status, remove });
    return given.call(this, status, ...rest);
  };
  Object.defineProperty(raw, 'writeHead', { configurable: true, writable: true, value: writeHead });
}
