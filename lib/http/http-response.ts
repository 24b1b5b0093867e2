import {
  RESPONSE_PASSTHROUGH_METADATA,
  ROUTE_ARGS_METADATA,
  HOST_METADATA,
  PATH_METADATA,
  VERSION_METADATA,
} from '@nestjs/common/constants.js';
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

type Place = object & { readonly name: string };

/**
 * Where the requests of a controller come from beside their path: its host, and the version of controller and handler.
 * `undefined` for a handler that its path alone determines.
 */
export function hostAndVersion(controller: Place, handler: Place): string | undefined {
  const parts = [metadata(HOST_METADATA, controller), version(handler) ?? version(controller)];
  return parts.some((part) => part !== undefined) ? parts.map((part) => part ?? '').join('|') : undefined;
}

/** The place of a controller or of one of its handlers: two controllers may have classes of one name. */
export function placeOf(controller: Place, handler?: Place): string {
  const path = metadata(PATH_METADATA, controller);
  const parts = [path, hostAndVersion(controller, handler ?? controller)].filter((part) => part !== undefined);
  return [handler ? `${controller.name}.${handler.name}` : controller.name, ...parts].join('@');
}

function version(target: Place): string | undefined {
  return metadata(VERSION_METADATA, target);
}

/** Text, a list of texts, a pattern or a symbol. */
function metadata(key: string, target: Place): string | undefined {
  const value: unknown = Reflect.getMetadata(key, target);
  if (value === undefined) return undefined;
  return (Array.isArray(value) ? value : [value]).map(String).join(',');
}
