import { Observable } from 'rxjs';
import type { MethodInterceptor } from '../interceptors/method-interceptor.js';

type Method = (this: object, ...args: unknown[]) => unknown;

/** What a method is decorated with, and the error that says where it cannot stand. */
export interface DecoratorKind {
  readonly name: string;
  readonly ConfigError: new (message: string) => Error;
}

/** `Class.method`, for messages. */
export function methodName(target: object, key: string | symbol): string {
  return `${typeof target === 'function' ? target.name : target.constructor.name}.${String(key)}`;
}

/** Called by the decorator of a method. @throws the decorator's ConfigError where it stands on something else */
export function wrapMethod(
  decorator: DecoratorKind,
  target: object,
  key: string | symbol,
  descriptor: PropertyDescriptor | undefined,
  interceptor: MethodInterceptor,
): void {
  const name = methodName(target, key);
  const original = requireMethod(decorator, name, target, descriptor);
  const returnsObservable = isObservableType(Reflect.getMetadata('design:returntype', target, key));
  if (returnsObservable && !interceptor.interceptObservable) {
    throw new decorator.ConfigError(
      `@${decorator.name} stands on ${name}, which returns an Observable; return a promise, as of firstValueFrom()`,
    );
  }
  const wrapper: Method = function (...args) {
    const call = { instance: this, name, args, proceed: () => original.apply(this, args) };
    return returnsObservable ? interceptor.interceptObservable?.(call) : interceptor.interceptPromise(call);
  };
  // Everything that others have put or will look for on the method is found through the wrapper: metadata of decorators
  // below, and own properties.
  Object.setPrototypeOf(wrapper, original);
  Object.defineProperty(wrapper, 'name', { value: original.name, configurable: true });
  Object.defineProperty(wrapper, 'length', { value: original.length, configurable: true });
  (descriptor as PropertyDescriptor).value = wrapper;
}

function requireMethod(
  decorator: DecoratorKind,
  name: string,
  target: object,
  descriptor: PropertyDescriptor | undefined,
): Method {
  if (typeof descriptor?.value !== 'function') {
    throw new decorator.ConfigError(`@${decorator.name} stands on ${name}, which is not a method`);
  }
  if (typeof target === 'function') {
    throw new decorator.ConfigError(
      `@${decorator.name} stands on the static method ${name}; Nest injects into instances only`,
    );
  }
  const kind = (descriptor.value as Method).constructor.name;
  if (kind.endsWith('GeneratorFunction')) {
    throw new decorator.ConfigError(
      `@${decorator.name} stands on ${name}, a generator: it cannot cover what that yields`,
    );
  }
  return descriptor.value as Method;
}

function isObservableType(type: unknown): boolean {
  return typeof type === 'function' && (type === Observable || type.prototype instanceof Observable);
}
