import { RESPONSE_PASSTHROUGH_METADATA, ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';

/**
 * Whether a handler answers by `@Res()` or `@Next()` itself. Nest then sends nothing, also if an interceptor returns a
 * body in the place of the handler, so the request would never be answered.
 */
export function answersItself(controller: object, handler: string | symbol): boolean {
  if (Reflect.getMetadata(RESPONSE_PASSTHROUGH_METADATA, controller, handler)) return false;
  const parameters = (Reflect.getMetadata(ROUTE_ARGS_METADATA, controller, handler) ?? {}) as object;
  return Object.keys(parameters).some((key) => TAKES_RESPONSE.test(key));
}

/** Nest describes a parameter under its type and index. */
const TAKES_RESPONSE = new RegExp(`^(?:${RouteParamtypes.RESPONSE}|${RouteParamtypes.NEXT}):`);
