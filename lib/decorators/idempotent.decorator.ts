import { PrimitiveConfigError, PrimitiveKeyError } from '../errors/primitive-errors.js';
import { callable } from '../options/checks.js';
import { boundOptions, withTemplate } from '../options/fixed-options.js';
import { primitiveOption, unawaited } from '../options/option-checks.js';
import { idempotencySettings, type IdempotencyOptions } from '../primitives/idempotency/idempotency-options.js';
import { MethodBegin, NothingDone, endOf, outcomeOf } from '../primitives/idempotency/method-begin.js';
import { IdempotencyService } from '../primitives/idempotency/idempotency.service.js';
import { IDEMPOTENCY } from '../wiring/injected-services.js';
import { injectProperty } from '../wiring/instance-adopter.js';
import { noteMethod } from '../wiring/noted-methods.js';
import type { CheckedMethodDecorator } from './checked-method-decorator.types.js';
import { compileSingleKeyTemplate, notedKey, singleKeyFunction, templateNamed } from './key-template.js';
import {
  mockedService,
  noteBackend,
  serviceOf,
  wrapMethod,
  type MethodCall,
  type MethodDecoration,
  type MethodInterceptor,
} from './method-wrapping.js';
import type { Inferred, OfArguments } from './method.types.js';

const DECORATOR = { name: 'Idempotent', ConfigError: PrimitiveConfigError } as const;

/** How the result of a method is kept, and what is compared between the calls of a key. */
export interface IdempotentOptions extends IdempotencyOptions {
  /**
   * What makes the request: a key template such as `'<#0>'`, or a function of the method's arguments that returns data.
   * A repeat with another fingerprint throws `IdempotencyConflictError`.
   * @default none
   */
  fingerprint?: string | OfArguments<unknown>;
  /** Of the method's arguments: a signal that ends the wait of this call for another one. @default none */
  signal?: OfArguments<AbortSignal | undefined>;
}

/**
 * Runs the method once for each key and keeps its result: `IdempotencyService.run`. A repeat gets the kept result, also
 * from another process.
 *
 * The key is a template (`'order:<0.orderId>'`) or a function of the method's arguments. It must identify the request
 * of one client: with the key of another one, a caller gets that one's result.
 *
 * Inside the method, `IdempotencyService.current()` tells the attempt.
 *
 * @throws IdempotencyConflictError when the key belongs to a call with another fingerprint
 * @throws IdempotencyRunningError when another call with the key still runs, after `wait`
 * @throws IdempotencyResultError when the method ran, but its result cannot be kept, or could not be stored
 * @throws LockLostError when the lock was lost while the method ran, and its result is not kept
 * @throws PrimitiveBackendError or LockBackendError when the backend fails; the method did not run
 * @throws PrimitiveKeyError when the arguments make no valid key
 * @throws PrimitiveNotWiredError when Nest did not create the instance
 */
export function Idempotent<
  const Key extends string = never,
  Arguments extends unknown[] = [],
  const Options extends IdempotentOptions = IdempotentOptions,
  This = unknown,
>(
  key: Key | ((this: This, ...args: Arguments) => string),
  options?: IdempotentOptions & Inferred<Options, 'fingerprint' | 'signal'>,
): CheckedMethodDecorator<'Idempotent', Key, Arguments, Options, This>;
export function Idempotent(
  key: string | ((...args: never[]) => string),
  given: IdempotentOptions = {},
): MethodDecoration {
  primitiveOption.object('options', given, 'an object of idempotency options');
  const { fingerprint, signal, ...options } = given;
  idempotencySettings(options);
  if (signal !== undefined) callable()(signal, 'signal', primitiveOption);
  const keyOf = singleKeyFunction(key, PrimitiveKeyError);
  const fingerprintOf = fingerprintFunction(fingerprint);
  return (target, propertyKey, descriptor) => {
    const named = withTemplate(options, templateNamed(key, target, propertyKey));
    const interceptor = new IdempotentInterceptor({
      keyOf,
      options: named,
      ofInstance: boundOptions(named),
      fingerprintOf,
      signal,
    });
    wrapMethod(DECORATOR, target, propertyKey, descriptor, interceptor);
    injectProperty(target, IDEMPOTENCY);
    noteMethod(target, propertyKey, {
      decorator: DECORATOR.name,
      ...notedKey(key, PrimitiveKeyError),
      options: { ...given },
    });
    noteBackend(DECORATOR, target, propertyKey, named.backend);
  };
}

function fingerprintFunction(
  fingerprint: IdempotentOptions['fingerprint'],
): ((call: MethodCall) => unknown) | undefined {
  if (fingerprint === undefined) return undefined;
  if (typeof fingerprint === 'function') return ({ instance, args }) => unawaited(fingerprint.call(instance, ...args));
  if (typeof fingerprint === 'string') return compileSingleKeyTemplate(fingerprint, PrimitiveKeyError);
  throw primitiveOption.refused('fingerprint', fingerprint, "a key template such as '<#0>', or a function");
}

/** How a method is made idempotent. */
interface IdempotentMethod {
  readonly keyOf: (call: MethodCall) => string;
  readonly options: IdempotencyOptions;
  readonly ofInstance: ((instance: object) => IdempotencyOptions) | undefined;
  /** Makes what is compared between the calls of a key, if anything. */
  readonly fingerprintOf: ((call: MethodCall) => unknown) | undefined;
  readonly signal: OfArguments<AbortSignal | undefined> | undefined;
}

/** Answers with the kept result, or runs the method and keeps its result. */
class IdempotentInterceptor implements MethodInterceptor {
  readonly mayAnswer = 'a repeat';

  constructor(private readonly method: IdempotentMethod) {}

  async interceptPromise(call: MethodCall): Promise<unknown> {
    const { keyOf, options, ofInstance, fingerprintOf, signal } = this.method;
    const service = serviceOf(IDEMPOTENCY, call);
    const given = {
      ...(ofInstance?.(call.instance) ?? options),
      ...(fingerprintOf && { fingerprint: fingerprintOf(call) }),
      ...(signal && { signal: unawaited(signal.call(call.instance, ...call.args)) }),
    };
    let ran = false;
    const value = await service.run(keyOf(call), given, async () => {
      ran = true;
      const begin = new MethodBegin(call.method);
      const end = await endOf(begin.around(async () => call.proceed()));
      // A decorator below has refused the call, or skipped it.
      return begin.begun ? outcomeOf(end) : new NothingDone(() => outcomeOf(end));
    });
    // A kept result stands for the method, also for an attempt around this call.
    if (!ran) MethodBegin.note(call.method);
    if (value === undefined && !ran && !(service instanceof IdempotencyService)) throw mockedService(IDEMPOTENCY, call);
    return value;
  }
}
