import { CacheService } from '../cache/cache.service.js';
import { about, cacheKeys } from '../cache/key-scope.js';
import type { CacheEntryOptions } from '../cache/options/cache-options.js';
import { entrySettings } from '../cache/options/entry-settings.js';
import { CacheConfigError, CacheKeyError } from '../errors/cache-errors.js';
import { cacheOption } from '../options/option-checks.js';
import { CACHE } from '../wiring/injected-services.js';
import { injectProperty } from '../wiring/instance-adopter.js';
import { keyFunction, type AnyKey } from './key-template.js';
import { wrapMethod, type MethodCall, type MethodDecoration, type MethodInterceptor } from './method-wrapping.js';

/** Decorates a method with a decorator of the cache. @throws CacheConfigError when it stands on anything else */
export function cacheDecoration(name: string, interceptor: MethodInterceptor): MethodDecoration {
  return (target, propertyKey, descriptor) => {
    wrapMethod({ name, ConfigError: CacheConfigError }, target, propertyKey, descriptor, interceptor);
    injectProperty(target, CACHE);
  };
}

/** Returns a function that makes the names of a call; `undefined` if none are given. @throws CacheKeyError */
export function namesFunction(names: AnyKey | undefined): ((call: MethodCall) => readonly string[]) | undefined {
  if (names === undefined || (Array.isArray(names) && names.length === 0)) return undefined;
  const made = keyFunction(names, CacheKeyError);
  return (call) => cacheKeys(made(call));
}

/** As `CacheService.onceCommitted`; a mock of the service knows no transactions. */
export function onceCommitted(cache: CacheService, { name }: MethodCall, run: () => Promise<void>): Promise<void> {
  return cache instanceof CacheService ? cache.onceCommitted(name, run) : run();
}

/** Checks the options of a decorator, whose errors name it. @throws CacheConfigError */
export function decoratorSettings(decorator: string, key: unknown, options: CacheEntryOptions): void {
  about(`@${decorator}`, typeof key === 'string' ? [key] : [], () => entrySettings(options));
}

/** Refuses options that are given but are not functions. @throws CacheConfigError */
export function requireFunctions(options: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && typeof value !== 'function') throw cacheOption.refused(name, value, 'a function');
  }
}

/** Refuses options with any other name. @throws CacheConfigError */
export function requireOnly(decorator: string, options: object, names: readonly string[]): void {
  for (const name in options) {
    if (names.includes(name)) continue;
    throw new CacheConfigError(`@${decorator} has no option "${name}"; leave it out`);
  }
}

/** The error for a value that can be read only once; `kind`: see `streamKindOf`. */
export function readOnce({ name }: MethodCall, kind: string): Error {
  return new CacheConfigError(
    `${name} returned ${kind}, which can be read only once and so cannot be cached; read it to its end and return its content`,
  );
}
