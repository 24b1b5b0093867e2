import { Observable } from 'rxjs';
import { answersItself, OwnAnswer } from '../http/http-response.js';
import { MethodBegin, methodBelow, noteWrapper } from '../primitives/idempotency/method-begin.js';
import type { InjectedService } from '../wiring/injected-services.js';
import { noteNamedBackend } from '../wiring/start-checks.js';

type Method = (this: object, ...args: unknown[]) => unknown;

/** One call of a decorated method, with the method's own arguments. */
export interface MethodCall {
  readonly instance: object;
  /** `Class.method`, for messages. */
  readonly name: string;
  readonly args: readonly unknown[];
  /** Runs the method. */
  proceed(): unknown;
  /** The method below all decorators of this library. */
  readonly method: object;
  /**
   * Has a function of the arguments answer in the place of the method. Where the method is a route handler that answers
   * by `@Res()` or `@Next()`, so must the function.
   *
   * @throws ConfigError when it has not
   */
  answerBy(react: (args: readonly unknown[]) => unknown): unknown;
}

/**
 * Around-advice of a decorated method. Not a `NestInterceptor`, because those never see the methods of services, and
 * get the request and response instead of the arguments.
 */
export interface MethodInterceptor {
  /**
   * Calls that the interceptor answers with a value in the place of the method, such as 'a repeat', if there are any.
   * It cannot stand on a route handler that answers by `@Res()` or `@Next()`: nobody would send the value.
   */
  readonly mayAnswer?: string | undefined;
  /** What goes wrong on a route handler that answers by `@Res()` or `@Next()`, where the result is needed. */
  readonly withoutResult?: string;
  /** For a method that returns a promise. */
  interceptPromise(call: MethodCall): Promise<unknown>;
  /** For a method that is declared to return an Observable. Absent if the decorator cannot stand on such a method. */
  interceptObservable?(call: MethodCall): Observable<unknown>;
}

/** A method decorator, without its checks. On a property, it is called without a descriptor. */
export type MethodDecoration = (
  target: object,
  propertyKey: string | symbol,
  descriptor: PropertyDescriptor | undefined,
) => void;

/** A decorator's name, and its error class for places where it cannot stand. */
interface DecoratorKind {
  readonly name: string;
  readonly ConfigError: new (message: string) => Error;
}

/** `Class.method`, for messages. */
export function methodName(target: object, key: string | symbol): string {
  return `${typeof target === 'function' ? target.name : target.constructor.name}.${String(key)}`;
}

/**
 * Wraps the decorated method.
 *
 * @throws the decorator's ConfigError when it stands on anything else, or on a route handler that answers by `@Res()`
 * or `@Next()`, where the interceptor may answer a call with a value, or needs the handler's
 */
export function wrapMethod(
  decorator: DecoratorKind,
  target: object,
  key: string | symbol,
  descriptor: PropertyDescriptor | undefined,
  interceptor: MethodInterceptor,
): void {
  const name = methodName(target, key);
  if (!descriptor) throw withoutDescriptor(decorator, target, key);
  const original = requireMethod(decorator, name, target, descriptor);
  const isOwnAnswer = answersItself(target.constructor, key);
  if (isOwnAnswer && interceptor.mayAnswer !== undefined) throw unanswered(decorator, name, interceptor.mayAnswer);
  if (isOwnAnswer && interceptor.withoutResult !== undefined)
    throw ownAnswerRefused(decorator, name, interceptor.withoutResult);
  const returnsObservable = isObservableType(Reflect.getMetadata('design:returntype', target, key));
  if (returnsObservable && !interceptor.interceptObservable) {
    throw new decorator.ConfigError(
      `@${decorator.name} stands on ${name}, which returns an Observable; return a promise, as of firstValueFrom()`,
    );
  }
  const method = methodBelow(original);
  const isInnermost = method === original;
  const wrapper: Method = function (...args) {
    const answerBy: MethodCall['answerBy'] = (react) => {
      if (!isOwnAnswer) return react(args);
      return ownAnswerBy(react, new OwnAnswer(target.constructor, key, args), () =>
        unanswered(decorator, name, 'a call that a function answers without the response'),
      );
    };
    const proceed = () => {
      if (isInnermost && MethodBegin.watches > 0) MethodBegin.note(method);
      return original.apply(this, args);
    };
    const call = { instance: this, name, args, method, proceed, answerBy };
    return returnsObservable ? interceptor.interceptObservable?.(call) : interceptor.interceptPromise(call);
  };
  // The wrapper inherits from the method, so that metadata of decorators below and other own properties are found on
  // it.
  Object.setPrototypeOf(wrapper, original);
  Object.defineProperty(wrapper, 'name', { value: original.name, configurable: true });
  Object.defineProperty(wrapper, 'length', { value: original.length, configurable: true });
  noteWrapper(wrapper, original);
  descriptor.value = wrapper;
}

/** Has the start-up check the backend that the decorator names, if it names one. */
export function noteBackend(
  { name }: DecoratorKind,
  target: object,
  key: string | symbol,
  backend: string | undefined,
): void {
  if (backend === undefined) return;
  noteNamedBackend(target, { place: `@${name} of ${methodName(target, key)}`, property: key, backend });
}

/** `call` names the calls of a handler with `@Res()` or `@Next()` that nobody would answer. */
function unanswered(decorator: DecoratorKind, method: string, call: string): Error {
  return ownAnswerRefused(decorator, method, `${call} would never be answered`);
}

function ownAnswerRefused({ name, ConfigError }: DecoratorKind, method: string, consequence: string): Error {
  return new ConfigError(
    `@${name} stands on ${method}, which answers by @Res() or @Next(), so that ${consequence}; ` +
      'return the body, and set headers by @Res({ passthrough: true })',
  );
}

/** Throws when the function has ended, or its promise has, and nothing was answered. */
function ownAnswerBy(
  react: (args: readonly unknown[]) => unknown,
  answer: OwnAnswer,
  notAnswered: () => Error,
): unknown {
  const answered = (value: unknown) => {
    if (answer.isGiven) return value;
    throw notAnswered();
  };
  const value = react(answer.args);
  return value instanceof Promise ? value.then(answered) : answered(value);
}

/**
 * By their types, decorators may stand on a property, and by `applyDecorators` on a class: neither has a descriptor.
 */
function withoutDescriptor(
  { name, ConfigError }: DecoratorKind,
  target: object,
  key: string | symbol | object | undefined,
): Error {
  if (typeof key === 'object') {
    return new ConfigError(
      `@${name} was called as a standard decorator, which cannot see parameters; set "experimentalDecorators" in the ` +
        'compilerOptions of tsconfig.json, as Nest needs it',
    );
  }
  if (key === undefined) {
    return new ConfigError(`@${name} stands on the class ${(target as { name: string }).name}; put it on its methods`);
  }
  return new ConfigError(
    `@${name} stands on the property ${methodName(target, key)}, whose value it cannot wrap: each instance has its own; write a ` +
      `method, async ${String(key)}() { ... }, and put it there`,
  );
}

function requireMethod(decorator: DecoratorKind, name: string, target: object, descriptor: PropertyDescriptor): Method {
  if (typeof descriptor.value !== 'function') {
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
      `@${decorator.name} stands on ${name}, a generator, which runs while its caller reads it; return a promise instead`,
    );
  }
  return descriptor.value as Method;
}

function isObservableType(type: unknown): boolean {
  return typeof type === 'function' && (type === Observable || type.prototype instanceof Observable);
}

/** @throws NotWiredError when Nest did not create the instance */
export function serviceOf<Service>(injected: InjectedService<Service>, call: MethodCall): Service {
  const { property, token, instead, method, NotWiredError } = injected;
  const instance: unknown = call.instance;
  // The class has the property, and so have its instances.
  const isInstance = typeof instance === 'object' && instance !== null && property in instance;
  const service = isInstance ? (instance as Record<symbol, Service | undefined>)[property] : undefined;
  if (!service) {
    if (!isInstance) throw new NotWiredError(withoutInstance(call));
    throw new NotWiredError(
      `${call.name} did not run: its instance has no ${token.name}. Let Nest create it as a provider or controller of an ` +
        'application that imports RedisLockModule (or RedisLockTestingModule). An instance of a factory (useFactory) or ' +
        'a value (useValue) gets it when the application initialises, unless it is request-scoped, in a lazily loaded ' +
        `module, or inside another object; there, use ${instead}; in a test, wire() of nest-redis-lock/testing`,
    );
  }
  if (method !== undefined && typeof (service as Record<string, unknown>)[method] !== 'function')
    throw mockedService(injected, call);
  return service;
}

function withoutInstance({ name, instance }: MethodCall): string {
  const method = name.slice(name.lastIndexOf('.') + 1);
  const found = instance === undefined ? 'without its instance' : 'on another object';
  return (
    `${name} did not run: it was called ${found}, as happens to a method that is passed on (map(shop.${method}), ` +
    `const { ${method} } = shop). Call it on its instance, as in map((each) => shop.${method}(each)), or pass on ` +
    `shop.${method}.bind(shop)`
  );
}

/** The error for a mocked service that returned without calling the method. */
export function mockedService({ token, NotWiredError }: InjectedService<unknown>, { name }: MethodCall): Error {
  return new NotWiredError(
    `${name} did not run: its ${token.name} is a mock that did not call the function it was given. Import ` +
      `RedisLockTestingModule instead of mocking ${token.name}, or let the mock call that function`,
  );
}
