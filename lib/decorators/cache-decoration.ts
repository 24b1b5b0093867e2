import { CacheConfigError, CacheKeyError } from '../errors/cache-errors.js';
import { cacheKeys } from '../cache/api/cache-keys.js';
import { cacheOption } from '../options/option-checks.js';
import type { MethodInterceptor } from '../interceptors/method-interceptor.js';
import { CACHE } from '../interceptors/wiring/injected-services.js';
import { injectProperty } from '../interceptors/wiring/package-copy.js';
import { keyFunction, type AnyKey } from './key-function.js';
import { wrapMethod } from './method-wrapping.js';

type MethodDecoration = (target: object, propertyKey: string | symbol, descriptor: PropertyDescriptor) => void;

/** What the decorators of the cache do to a method. @throws CacheConfigError where one stands on something else */
export function cacheDecoration(name: string, interceptor: MethodInterceptor): MethodDecoration {
  return (target, propertyKey, descriptor) => {
    wrapMethod({ name, ConfigError: CacheConfigError }, target, propertyKey, descriptor, interceptor);
    injectProperty(target, CACHE);
  };
}

/** What makes names from the arguments of a call; `undefined` where none are given. @throws CacheKeyError */
export function namesFunction(
  names: AnyKey | undefined,
): ((args: readonly unknown[]) => readonly string[]) | undefined {
  if (names === undefined || (Array.isArray(names) && names.length === 0)) return undefined;
  const made = keyFunction(names, CacheKeyError);
  return (args) => cacheKeys(made(args));
}

/** Refuses options that are given and no function. @throws CacheConfigError */
export function requireFunctions(options: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && typeof value !== 'function') throw cacheOption.refused(name, value, 'a function');
  }
}

/** Refuses options of another name than these. @throws CacheConfigError */
export function requireOnly(decorator: string, options: object, names: readonly string[]): void {
  for (const name in options) {
    if (names.includes(name)) continue;
    throw new CacheConfigError(`@${decorator} has no option "${name}"; leave it out`);
  }
}
