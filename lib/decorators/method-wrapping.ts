import { Inject, type Type } from '@nestjs/common';
import { Observable } from 'rxjs';
import type { MethodInterceptor } from '../interceptors/method-interceptor.js';
import { LockConfigError } from '../lock/lock-errors.js';

type Method = (this: object, ...args: unknown[]) => unknown;

/** Called by the decorator of a method. @throws LockConfigError where the decorator stands on something else */
export function wrapMethod(
  decorator: string,
  target: object,
  key: string | symbol,
  descriptor: PropertyDescriptor | undefined,
  interceptor: MethodInterceptor,
): void {
  const name = `${typeof target === 'function' ? target.name : target.constructor.name}.${String(key)}`;
  const original = requireMethod(decorator, name, target, descriptor);
  const returnsObservable = isObservableType(Reflect.getMetadata('design:returntype', target, key));
  const wrapper: Method = function (...args) {
    const call = { instance: this, name, args, proceed: () => original.apply(this, args) };
    return returnsObservable ? interceptor.interceptObservable(call) : interceptor.interceptPromise(call);
  };
  // Everything that others have put or will look for on the method is found through the wrapper: metadata of decorators
  // below, and own properties.
  Object.setPrototypeOf(wrapper, original);
  Object.defineProperty(wrapper, 'name', { value: original.name, configurable: true });
  Object.defineProperty(wrapper, 'length', { value: original.length, configurable: true });
  (descriptor as PropertyDescriptor).value = wrapper;
}

/** Lets Nest inject `token` into the property `property` of the class, once. */
export function injectProperty(target: object, property: symbol, token: Type): void {
  if (Object.hasOwn(target, property)) return;
  Object.defineProperty(target, property, { value: undefined, writable: true, configurable: true });
  Inject(token)(target, property);
}

function requireMethod(
  decorator: string,
  name: string,
  target: object,
  descriptor: PropertyDescriptor | undefined,
): Method {
  if (typeof descriptor?.value !== 'function') {
    throw new LockConfigError(`@${decorator} stands on ${name}, which is not a method`);
  }
  if (typeof target === 'function') {
    throw new LockConfigError(`@${decorator} stands on the static method ${name}; Nest injects into instances only`);
  }
  const kind = (descriptor.value as Method).constructor.name;
  if (kind.endsWith('GeneratorFunction')) {
    throw new LockConfigError(`@${decorator} stands on ${name}, a generator: the lock cannot cover what it yields`);
  }
  return descriptor.value as Method;
}

function isObservableType(type: unknown): boolean {
  return typeof type === 'function' && (type === Observable || type.prototype instanceof Observable);
}
