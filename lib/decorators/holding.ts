import { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { types } from 'node:util';
import { StreamableFile } from '@nestjs/common';
import { EMPTY, from, isObservable, Observable, of, ReplaySubject, takeUntil, type Subscriber } from 'rxjs';
import { streamKindOf } from '../cache/values/unkept-classes.js';
import type { HttpError } from '../errors/http-error.js';
import { isThrown } from '../errors/limited-log.js';
import type { LockTimeoutError } from '../errors/lock-errors.js';
import { abortSignal } from '../options/checks.js';
import { boundOptions, fixedOptions, withTemplate } from '../options/fixed-options.js';
import { isThenable, unawaited, type OptionChecks } from '../options/option-checks.js';
import type { InjectedService } from '../wiring/injected-services.js';
import { injectProperty } from '../wiring/instance-adopter.js';
import { templateNamed, type AnyKey } from './key-template.js';
import {
  mockedService,
  noteBackend,
  serviceOf,
  wrapMethod,
  type MethodCall,
  type MethodDecoration,
  type MethodInterceptor,
} from './method-wrapping.js';
import type { OfArguments } from './method.types.js';

/** The argument of `onBusy`. `BusyError` is what the call throws without it, as a `SemaphoreTimeoutError`. */
export interface BusyCall<BusyError = LockTimeoutError> {
  readonly keys: readonly string[];
  readonly args: readonly unknown[];
  readonly error: BusyError;
}

/** `'throw'`, `'skip'`, or a function: the call resolves to its result (an Observable emits it). */
type BusyReaction<BusyError> = 'throw' | 'skip' | ((busy: BusyCall<BusyError>) => unknown);

/** What a decorated method holds while it runs. */
interface Hold {
  readonly signal: AbortSignal;
}

/** What a decorator holds while its method runs, and the method of its service that takes it. */
interface Holding<Method extends string, Key, Options, Held extends Hold, BusyError extends HttpError<string>> {
  /** The name of the decorator. */
  readonly name: string;
  readonly injected: InjectedService<Record<Method, RunWith<Key, Options, Held>>>;
  readonly method: Method;
  /** The word for what is held, in errors. */
  readonly noun: string;
  readonly BusyError: abstract new (...args: never[]) => BusyError;
  readonly checks: OptionChecks;
}

/** Takes what `key` and `options` say, runs `body`, gives back. */
type RunWith<Key, Options, Held> = <T>(key: Key, options: Options, body: (held: Held) => Promise<T>) => Promise<T>;

/** What the user said of the calls of a method: for which keys, and how, they hold something. */
interface HeldCalls<Key, Options, BusyError> {
  readonly key: AnyKey;
  readonly keyOf: (call: MethodCall) => Key;
  readonly options: Options;
  readonly signal: GivenSignal | undefined;
  readonly onBusy: BusyReaction<BusyError>;
}

/** Runs a method while something is held for it. The method never runs without. */
export function holdingDecoration<
  Method extends string,
  Key,
  Options extends { readonly signal?: AbortSignal; readonly backend?: string },
  Held extends Hold,
  BusyError extends HttpError<string>,
>(
  holding: Holding<Method, Key, Options, Held, BusyError>,
  { key, keyOf, options, signal, onBusy }: HeldCalls<Key, Options, BusyError>,
): MethodDecoration {
  const { name, injected, checks } = holding;
  const decorator = { name, ConfigError: injected.ConfigError };
  return (target, propertyKey, descriptor) => {
    const named = withTemplate(options, templateNamed(key, target, propertyKey));
    const interceptor = new HoldingInterceptor(holding, keyOf, holdOptions(named, signal, checks), onBusy);
    wrapMethod(decorator, target, propertyKey, descriptor, interceptor);
    injectProperty(target, injected);
    noteBackend(decorator, target, propertyKey, named.backend);
  };
}

/** Holds from before the method begins until its promise, its Observable or its Node.js stream has ended. */
class HoldingInterceptor<
  Method extends string,
  Key,
  Options extends { readonly signal?: AbortSignal },
  Held extends Hold,
  BusyError extends HttpError<string>,
> implements MethodInterceptor {
  constructor(
    private readonly holding: Holding<Method, Key, Options, Held, BusyError>,
    private readonly keyOf: (call: MethodCall) => Key,
    private readonly options: HoldOptions<Options>,
    private readonly onBusy: BusyReaction<BusyError>,
  ) {}

  get mayAnswer(): string | undefined {
    return this.onBusy === 'skip' ? 'a skipped call' : undefined;
  }

  interceptPromise(call: MethodCall): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.runPromise(call, resolve).then(resolve, reject);
    });
  }

  interceptObservable(call: MethodCall): Observable<unknown> {
    return new Observable((subscriber) => {
      const unsubscribed = new AbortController();
      let began = false;
      const stream = async (held: Held) => {
        began = true;
        await untilStreamEnds(call.proceed() as Observable<unknown>, held, subscriber);
      };
      const run = async () => {
        await this.hold(call, unsubscribed.signal, stream);
        if (!began) throw mockedService(this.holding.injected, call);
      };
      run().then(
        () => subscriber.complete(),
        (error: unknown) => {
          if (began || !this.isBusy(error)) subscriber.error(error);
          else this.busyStream(call, error).subscribe(subscriber);
        },
      );
      return () => unsubscribed.abort();
    });
  }

  /** The wait of the call ends also when its caller has `left`. */
  private hold<T>(call: MethodCall, left: AbortSignal | undefined, body: (held: Held) => Promise<T>): Promise<T> {
    const { injected, method } = this.holding;
    const service = serviceOf(injected, call);
    const key = this.keyOf(call);
    const { fixed, ofInstance, signalOf } = this.options;
    let options = ofInstance?.(call.instance) ?? fixed;
    if (signalOf || left) {
      const signals = [signalOf?.(call), options.signal, left].filter((signal) => signal !== undefined);
      if (signals.length > 0) options = { ...options, signal: AbortSignal.any(signals) };
    }
    return service[method](key, options, body);
  }

  private isBusy(error: unknown): error is BusyError {
    return isThrown(error, this.holding.BusyError);
  }

  /** Hands a stream over to the caller while the hold lasts. */
  private async runPromise(call: MethodCall, handOver: (result: unknown) => void): Promise<unknown> {
    let began = false;
    try {
      const value = await this.hold(call, undefined, async (held) => {
        began = true;
        const result = await call.proceed();
        if (isObservable(result)) {
          throw undeclaredObservable(this.holding.injected, call, `the ${this.holding.noun} cannot cover it`);
        }
        if (typeof result !== 'object') return result;
        const stream = nodeStreamOf(result);
        if (stream) await untilNodeStreamCloses(stream, held, () => handOver(result));
        else if (isReadLater(result)) throw this.readLater(call, result);
        return result;
      });
      if (!began) throw mockedService(this.holding.injected, call);
      return value;
    } catch (error) {
      if (began || !this.isBusy(error) || this.onBusy === 'throw') throw error;
      const { onBusy } = this;
      return onBusy === 'skip'
        ? undefined
        : call.answerBy((args) => onBusy.call(call.instance, { keys: error.keys, args, error }));
    }
  }

  private busyStream(call: MethodCall, error: BusyError): Observable<unknown> {
    const { onBusy } = this;
    if (onBusy === 'skip') return EMPTY;
    return new Observable((subscriber) => {
      if (onBusy === 'throw') return subscriber.error(error);
      const value = call.answerBy((args) => onBusy.call(call.instance, { keys: error.keys, args, error }));
      emitted(value).subscribe(subscriber);
    });
  }

  private readLater({ name }: MethodCall, result: object): Error {
    return new this.holding.injected.ConfigError(
      `${name} resolved to ${kindOf(result)}, which its caller reads after the ${this.holding.noun} is released; read it to its end and return ` +
        `its content, or return Readable.from(it): a Node.js Readable keeps the ${this.holding.noun} until it has ended`,
    );
  }
}

/** An Observable of what a function of the application answered in place of the method's. */
export function emitted(value: unknown): Observable<unknown> {
  return isObservable(value) || isThenable(value) ? from(value) : of(value);
}

/** How the calls of a method take what they hold. */
interface HoldOptions<Options> {
  /** Those of all calls. */
  readonly fixed: Options;
  readonly ofInstance: ((instance: object) => Options) | undefined;
  readonly signalOf: ((call: MethodCall) => AbortSignal | undefined) | undefined;
}

/** `signal` of a decorator: one for all calls, or a function of their arguments. */
type GivenSignal = AbortSignal | OfArguments<AbortSignal | undefined>;

/** Options without `signal`, and a `signal` that may be a function, whose answer is checked in each call. */
function holdOptions<Options extends object>(
  options: Options,
  signal: GivenSignal | undefined,
  checks: OptionChecks,
): HoldOptions<Options> {
  const fixed = fixedOptions(typeof signal === 'object' ? { ...options, signal } : options);
  const signalOf = ({ instance, args }: MethodCall) => {
    const answer: unknown = typeof signal === 'function' && unawaited(signal.call(instance, ...args));
    return answer === undefined ? undefined : abortSignal(answer, 'signal', checks);
  };
  return {
    fixed,
    ofInstance: boundOptions(fixed),
    signalOf: typeof signal === 'function' ? signalOf : undefined,
  };
}

/** @throws the ConfigError of `checks` for what is no reaction to a busy name or a limit that is reached */
export function requireReaction(option: 'onBusy' | 'onLimit', given: unknown, checks: OptionChecks): void {
  if (given === 'throw' || given === 'skip' || typeof given === 'function') return;
  throw checks.refused(option, given, "'throw', 'skip' or a function");
}

/**
 * Runs a method that does its work before its promise settles.
 *
 * @throws ConfigError where it returned an Observable, which nobody would subscribe to, or what runs while it is read
 */
export async function proceedToEnd({ ConfigError }: InjectedService<unknown>, call: MethodCall): Promise<unknown> {
  const result = await call.proceed();
  if (isObservable(result)) {
    throw new ConfigError(
      `${call.name} returned an Observable, so that nothing of it has run; return a promise, as of firstValueFrom()`,
    );
  }
  if (!(result instanceof StreamableFile) && !isReadLater(result)) return result;
  throw new ConfigError(
    `${call.name} resolved to ${kindOf(result)}, which runs while its caller reads it; read it to its end and return its content`,
  );
}

/** The error for a method that returned an Observable without being declared to. `why` says what is wrong with that. */
export function undeclaredObservable(
  { ConfigError }: InjectedService<unknown>,
  { name }: MethodCall,
  why: string,
): Error {
  return new ConfigError(
    `${name} returned an Observable without being declared to: ${why}. Declare the return type as ` +
      'Observable<...>, with emitDecoratorMetadata on, and return it without a promise around it',
  );
}

/** Settles when the stream ends or its reader leaves; rejects as soon as the hold is lost. */
function untilStreamEnds(stream: Observable<unknown>, held: Hold, subscriber: Subscriber<unknown>): Promise<void> {
  const { signal } = held;
  const ended = new AbortController();
  return new Promise<void>((resolve, reject) => {
    // Before subscribing to the source, which may emit everything at once; the reader may have left already.
    const left = new ReplaySubject<void>(1);
    subscriber.add(() => left.next());
    const lost = () => {
      reject(signal.reason);
      left.next();
    };
    signal.addEventListener('abort', lost, { signal: ended.signal });
    stream.pipe(takeUntil(left)).subscribe({
      next: (value) => subscriber.next(value),
      error: reject,
      complete: resolve,
    });
  }).finally(() => ended.abort());
}

/** Settles when the stream has ended, failed or was destroyed; destroys it as soon as the hold is lost. */
async function untilNodeStreamCloses(stream: Readable, held: Hold, handOver: () => void): Promise<void> {
  const { signal } = held;
  try {
    signal.throwIfAborted();
    handOver();
    await finished(stream, { writable: false, signal });
  } catch {
    if (!signal.aborted) return;
    // Without a listener, the error of an unread stream would end the process.
    stream.on('error', () => {});
    stream.destroy(signal.reason);
    throw signal.reason;
  }
}

function nodeStreamOf(result: unknown): Readable | undefined {
  const stream: unknown = result instanceof StreamableFile ? result.getStream() : result;
  return stream instanceof Readable ? stream : undefined;
}

/** Whether the values are made while the result is read: a generator, another async iterable, or a body of `fetch`. */
function isReadLater(result: unknown): result is object {
  if (typeof result !== 'object' || result === null) return false;
  if (streamKindOf(result) === 'a Response') return (result as Response).body !== null;
  return types.isGeneratorObject(result) || Symbol.asyncIterator in result;
}

function kindOf(result: object): string {
  const kind = streamKindOf(result);
  return kind === 'a StreamableFile' || kind === 'a Response' ? kind : 'an iterable';
}
