import type { IncomingHttpHeaders } from 'node:http';
import { VersioningType, type VersioningOptions } from '@nestjs/common';
import {
  HOST_METADATA,
  METHOD_METADATA,
  MODULE_PATH,
  PATH_METADATA,
  VERSION_METADATA,
} from '@nestjs/common/constants.js';
import type { ModulesContainer } from '@nestjs/core';
import { derivedName } from '../keys/key-part.js';
import type { LockBackends } from '../lock/line/lock-backends.js';

type Place = object & { readonly name: string };

/** The common part of Express and Fastify requests that tells routes apart. */
interface RoutedRequest {
  readonly method: string;
  readonly originalUrl: string;
  readonly headers: IncomingHttpHeaders;
  readonly hostname?: string;
}

/**
 * A name that the library makes up for what it keeps of HTTP requests. All applications at one store share its names,
 * so that the application is a part of it.
 */
export function httpName(backends: LockBackends, parts: readonly string[]): string {
  return derivedName('http', backends.options.application, parts);
}

/** The properties under which the handlers of a controller stand. */
const PROPERTIES = new WeakMap<object, WeakMap<object, string>>();

/** The method of the controller that is this function; other decorators may have given the function another name. */
export function handlerName(controller: Place, handler: Place): string {
  let known = PROPERTIES.get(controller);
  if (!known) PROPERTIES.set(controller, (known = new WeakMap()));
  let name = known.get(handler);
  if (name === undefined) known.set(handler, (name = propertyOf(controller, handler) ?? nameOf(handler)));
  return name;
}

/** Its own name, where an instance has its own function: one that is bound, for instance. */
function nameOf({ name }: Place): string {
  return name.replace(/^(?:bound )+/, '');
}

function propertyOf(controller: Place, handler: Place): string | undefined {
  for (const [name, value] of methodsOf(controller)) if (value === handler) return name;
  return undefined;
}

/** The methods of the class and of those that it extends. */
function* methodsOf(controller: Place): Generator<[name: string, method: Place], void, undefined> {
  const seen = new Set<string>(['constructor']);
  let prototype: unknown = (controller as Place & { readonly prototype?: unknown }).prototype;
  for (; typeof prototype === 'object' && prototype !== null; prototype = Object.getPrototypeOf(prototype)) {
    if (prototype === Object.prototype) return;
    for (const name of Object.getOwnPropertyNames(prototype)) {
      const value: unknown = Object.getOwnPropertyDescriptor(prototype, name)?.value;
      if (typeof value === 'function' && !seen.has(name)) yield [name, value];
      seen.add(name);
    }
  }
}

/**
 * The route that a request has matched, such as `/orders/:id`, and what tells it from the same path elsewhere: the host
 * and the version as the request gives them, where the route looks at them.
 */
export function routeOfRequest(
  request: RoutedRequest,
  controller: Place,
  handler: Place,
  versioning: VersioningOptions | undefined,
): string {
  const parts: string[] = [];
  if (metadata(HOST_METADATA, controller) !== undefined) parts.push(`host=${(request.hostname ?? '').toLowerCase()}`);
  const declared = metadata(VERSION_METADATA, handler) ?? metadata(VERSION_METADATA, controller);
  if (declared !== undefined || (versioning && 'defaultVersion' in versioning)) {
    parts.push(`version=${versionOf(request, versioning)}`);
  }
  return [matchedPath(request), ...parts].join('|');
}

/** The route in Express or Fastify; else the path. */
function matchedPath(request: RoutedRequest): string {
  const { route, routeOptions } = request as RoutedRequest & {
    route?: { path?: unknown };
    routeOptions?: { url?: unknown };
  };
  const path = route?.path ?? routeOptions?.url;
  return typeof path === 'string' ? path : pathOf(request);
}

export function pathOf({ originalUrl }: Pick<RoutedRequest, 'originalUrl'>): string {
  return originalUrl.replace(/\?.*$/s, '');
}

/** The version that a request asks for, as Nest reads it. That of a URL is a part of the path. */
function versionOf(request: RoutedRequest, versioning: VersioningOptions | undefined): string {
  switch (versioning?.type) {
    case VersioningType.HEADER:
      return String(request.headers[versioning.header.toLowerCase()] ?? '').trim();
    case VersioningType.MEDIA_TYPE:
      return (request.headers.accept ?? '')
        .split(/[;,]/)
        .map((part) => part.trim())
        .filter((part) => part.startsWith(versioning.key))
        .join(',');
    case VersioningType.CUSTOM:
      return String(versioning.extractor(request));
    default:
      return '';
  }
}

/**
 * The place of a controller, or of one of its handlers, as it is declared: whichever path, method, host or version a
 * client chooses of those that the handler serves, it is one place. Two controllers may have classes of one name.
 */
export function placeOf(modules: ModulesContainer, controller: Place, handler?: Place): string {
  const named = handler ? `${controller.name}.${handlerName(controller, handler)}` : controller.name;
  const routes = handler ? [routeOf(handler)] : [...methodsOf(controller)].map(([, method]) => routeOf(method));
  const parts = [
    moduleOf(modules, controller),
    metadata(PATH_METADATA, controller),
    routes.filter((route) => route !== undefined).join(' '),
    metadata(HOST_METADATA, controller),
    (handler && metadata(VERSION_METADATA, handler)) ?? metadata(VERSION_METADATA, controller),
  ];
  return [named, ...parts.map((part) => part ?? '')].join('@');
}

/** A route as its decorator declares it. */
function routeOf(handler: Place): string | undefined {
  const path = metadata(PATH_METADATA, handler);
  return path === undefined ? undefined : `${metadata(METHOD_METADATA, handler) ?? ''}/${path}`;
}

function moduleOf(modules: ModulesContainer, controller: Place): string | undefined {
  for (const each of modules.values()) {
    for (const { metatype } of each.controllers.values()) {
      if (metatype === controller) return [each.name, ...pathsOf(modules, each.metatype)].join('/');
    }
  }
  return undefined;
}

/** Where `RouterModule` has put the routes of the module. */
function pathsOf({ applicationId }: ModulesContainer, module: object): unknown[] {
  return [MODULE_PATH + applicationId, MODULE_PATH]
    .map((key): unknown => Reflect.getMetadata(key, module))
    .filter(Boolean);
}

/** Text, a list of texts, a pattern, a number or a symbol. */
function metadata(key: string, target: Place): string | undefined {
  const value: unknown = Reflect.getMetadata(key, target);
  if (value === undefined) return undefined;
  return (Array.isArray(value) ? value : [value]).map(String).join(',');
}
