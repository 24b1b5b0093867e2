import { AsyncLocalStorage } from 'node:async_hooks';
import { METHOD_METADATA, PATH_METADATA } from '@nestjs/common/constants.js';
import type { ModulesContainer } from '@nestjs/core';
import { isObservable, Observable } from 'rxjs';
import { type End, MethodBegin, methodBelow, noteWrapper } from '../primitives/idempotency/method-begin.js';
import { isSent, rawOf, type HttpResponse, whenHeadIsSent } from './http-response.js';

type Handler = (this: unknown, ...args: unknown[]) => unknown;

/** Who has sent the answer: the handler of this run, what stands between, or somebody else (a filter, a middleware). */
type Sender = 'handler' | 'below' | 'other';

/** What somebody has given to the answer. */
interface Given {
  status: number;
  readonly headers: Map<string, string | string[]>;
}

/** What the running code belongs to: a run, and the handler in it. */
const running = new AsyncLocalStorage<{ readonly run: HandlerRun; readonly isHandler: boolean }>();

/** The handlers that tell their run when they begin and end. */
const TELLING = new WeakSet<object>();

/**
 * One run of what stands below an interceptor: interceptors, pipes and the handler. Tells these apart: whether the
 * handler itself began, and how it ended; and tells who sent the answer, by the asynchronous context of the sender.
 */
export class HandlerRun {
  /** `undefined` for a handler that does not tell, which counts as begun. */
  private readonly begin: MethodBegin | undefined;
  private readonly method: object | undefined;
  /** By the handler, and by all that belongs to the run. */
  private readonly ofHandler: Given;
  private readonly ofRun: Given;
  private sender: Sender | undefined;
  /** A retry below the interceptor calls the handler several times. */
  private readonly calls = new Set<HandlerCall>();
  private end: End | undefined;
  private left: (() => void) | undefined;
  private isOver = false;

  constructor(
    controller: { readonly prototype?: unknown },
    handlerName: string,
    private readonly response: HttpResponse,
  ) {
    const { statusCode: status } = response;
    this.ofHandler = { status, headers: new Map() };
    this.ofRun = { status, headers: new Map() };
    const handler: unknown = (controller.prototype as Record<string, unknown> | undefined)?.[handlerName];
    if (typeof handler !== 'function' || !TELLING.has(handler)) return;
    this.method = methodBelow(handler);
    this.begin = new MethodBegin(this.method);
  }

  /** Whether the handler has begun, or a kept result stands for it. */
  get begun(): boolean {
    return this.begin?.begun ?? true;
  }

  /** Whether a call of the handler goes on. */
  get goesOn(): boolean {
    return this.calls.size > 0;
  }

  /** Whether a call of the handler has returned a value. */
  get hasValue(): boolean {
    return this.end !== undefined && 'value' in this.end;
  }

  /** Whether somebody else answers, or has answered. */
  get isForeign(): boolean {
    return this.sender === 'other' || this.sender === 'below';
  }

  /** Whether the handler has sent the answer by itself: a redirection, for instance. */
  get hasAnswered(): boolean {
    return this.sender === 'handler' || (this.sender === undefined && isSent(this.response));
  }

  /** Status and headers that the run itself has given: where somebody else answered, the response shows theirs. */
  get given(): Readonly<Given> {
    return this.sender === 'below' ? this.ofHandler : this.ofRun;
  }

  /** Calls it, and watches the handler and the response meanwhile. */
  async around<T>(body: () => Promise<T>): Promise<T> {
    this.watch();
    const run = () => running.run({ run: this, isHandler: false }, body);
    try {
      return await (this.begin ? this.begin.around(run) : run());
    } finally {
      this.isOver = true;
    }
  }

  /**
   * Somebody has answered in the place of the handler. Resolves when all its calls have ended, to what they came to:
   * `undefined` where nobody has subscribed to its Observable.
   */
  async leave(): Promise<End | undefined> {
    const left = new Promise<void>((resolve) => (this.left = resolve));
    for (const call of this.calls) if (call.isIdle) call.settle(undefined);
    if (this.calls.size === 0) return this.end;
    await left;
    return this.end;
  }

  /** @internal Calls the handler. */
  static call(method: object, original: () => unknown): unknown {
    const run = running.getStore()?.run;
    if (!run || run.method !== method) return original();
    const call = new HandlerCall(run);
    run.calls.add(call);
    try {
      return call.watched(call.inside(original));
    } catch (error) {
      call.settle({ error });
      throw error;
    }
  }

  /** @internal A value counts more than an error. */
  ended(call: HandlerCall, end: End | undefined): void {
    this.calls.delete(call);
    if (end && ('value' in end || !this.hasValue)) this.end = end;
    if (this.calls.size === 0) this.left?.();
  }

  /** @internal */
  get isLeft(): boolean {
    return this.left !== undefined;
  }

  /** Notes what the run gives to the response, and who sends it. */
  private watch(): void {
    const { response } = this;
    const raw = rawOf(response);
    const isInside = () => !this.isOver && running.getStore()?.run === this;
    whenHeadIsSent(response, () => {
      const inside = running.getStore()?.isHandler ? 'handler' : 'below';
      this.sender ??= isInside() ? inside : 'other';
    });
    // After the answer of somebody else, these would throw: a handler that has done its work would seem to have failed.
    const changes: Record<string, (own: Given['headers'], name: unknown, value: unknown) => unknown> = {
      setHeader: (own, name, value) => own.set(nameOf(name), textOf(value)),
      header: (own, name, value) => own.set(nameOf(name), textOf(value)),
      appendHeader: (own, name, value) => own.set(nameOf(name), [own.get(nameOf(name)) ?? [], textOf(value)].flat()),
      setHeaders: (own, headers) => {
        for (const [name, value] of headers as Iterable<[unknown, unknown]>) own.set(nameOf(name), textOf(value));
      },
      removeHeader: (own, name) => own.delete(nameOf(name)),
    };
    const givers = () => (running.getStore()?.isHandler ? [this.ofHandler, this.ofRun] : [this.ofRun]);
    for (const target of new Set<object>([raw, response])) {
      for (const [method, change] of Object.entries(changes)) {
        const given: unknown = Reflect.get(target, method);
        // In Express, it calls `setHeader`.
        if (typeof given !== 'function' || (method === 'header' && target === raw)) continue;
        const isForeign = () => this.isForeign;
        Object.defineProperty(target, method, {
          configurable: true,
          writable: true,
          value(this: unknown, ...args: unknown[]): unknown {
            if (!isInside()) return Reflect.apply(given, this, args);
            for (const { headers } of givers()) change(headers, args[0], args[1]);
            return isForeign() ? this : Reflect.apply(given, this, args);
          },
        });
      }
    }
    this.watchStatus(raw, isInside, givers);
  }

  private watchStatus(raw: object, isInside: () => boolean, givers: () => Given[]): void {
    const own = Object.getOwnPropertyDescriptor(raw, 'statusCode');
    if (own && !own.configurable) return;
    // Of HTTP/2, it is an accessor of the class.
    const inherited = own ?? inheritedDescriptor(raw, 'statusCode');
    let statusCode = Reflect.get(raw, 'statusCode') as number;
    Object.defineProperty(raw, 'statusCode', {
      configurable: true,
      enumerable: true,
      get: () => (inherited?.get ? (inherited.get.call(raw) as number) : statusCode),
      set: (status: number) => {
        if (isInside()) for (const each of givers()) each.status = status;
        // An answer begins with its status, and is sent when the hooks of Fastify have ended.
        else if (status >= 400) this.sender ??= 'other';
        if (isInside() && this.isForeign) return;
        if (inherited?.set) inherited.set.call(raw, status);
        else statusCode = status;
      },
    });
  }
}

/** One call of the handler. */
class HandlerCall {
  /** Whether it has made an Observable to which nobody has subscribed. */
  isIdle = false;

  constructor(private readonly run: HandlerRun) {}

  /** `undefined`: it came to nothing. */
  settle(end: End | undefined): void {
    this.run.ended(this, end);
  }

  inside<T>(body: () => T): T {
    return running.run({ run: this.run, isHandler: true }, body);
  }

  watched(result: unknown): unknown {
    if (isObservable(result)) return this.stream(result);
    if (typeof (result as PromiseLike<unknown> | undefined)?.then !== 'function') {
      this.settle({ value: result });
      return result;
    }
    return Promise.resolve(result).then(
      (value) => this.watched(value),
      (error: unknown) => {
        this.settle({ error });
        throw error;
      },
    );
  }

  /** One that is left before it has emitted goes on, as a promise does: the work behind it may have begun. */
  private stream(source: Observable<unknown>): Observable<unknown> {
    this.isIdle = true;
    if (this.run.isLeft) this.settle(undefined);
    return new Observable((subscriber) => {
      this.isIdle = false;
      let last: { readonly value: unknown } | undefined;
      const subscription = this.inside(() =>
        source.subscribe({
          next: (value) => {
            last = { value };
            subscriber.next(value);
          },
          error: (error: unknown) => {
            this.settle({ error });
            subscriber.error(error);
          },
          complete: () => {
            this.settle(last ?? { value: undefined });
            subscriber.complete();
          },
        }),
      );
      return () => {
        if (!last && !subscription.closed) return;
        subscription.unsubscribe();
        this.settle(undefined);
      };
    });
  }
}

function nameOf(header: unknown): string {
  return String(header).toLowerCase();
}

function textOf(value: unknown): string | string[] {
  return Array.isArray(value) ? value.map(String) : String(value);
}

function inheritedDescriptor(object: object, property: string): PropertyDescriptor | undefined {
  for (let each: object | null = object; each; each = Object.getPrototypeOf(each) as object | null) {
    const found = Object.getOwnPropertyDescriptor(each, property);
    if (found) return found;
  }
  return undefined;
}

/** Has the handlers of all routes tell their run. Nest reads them when it registers the routes, after this. */
export function watchHandlers(modules: ModulesContainer): void {
  for (const { controllers } of modules.values()) {
    for (const { metatype } of controllers.values()) {
      if (typeof metatype === 'function') watchHandlersOf(metatype.prototype as object);
    }
  }
}

function watchHandlersOf(prototype: object): void {
  for (let object = prototype; object !== Object.prototype && object !== null; object = Object.getPrototypeOf(object)) {
    for (const property of Reflect.ownKeys(object)) {
      const descriptor = Object.getOwnPropertyDescriptor(object, property);
      const original: unknown = descriptor?.value;
      if (typeof original !== 'function' || !descriptor?.configurable || TELLING.has(original)) continue;
      if (!Reflect.hasMetadata(PATH_METADATA, original) || !Reflect.hasMetadata(METHOD_METADATA, original)) continue;
      Object.defineProperty(object, property, { ...descriptor, value: tellingHandler(original as Handler) });
    }
  }
}

function tellingHandler(original: Handler): Handler {
  const method = methodBelow(original);
  const handler: Handler = function (...args) {
    return HandlerRun.call(method, () => {
      // Otherwise the innermost of the decorators around it tells.
      if (method === original) MethodBegin.note(method);
      return original.apply(this, args);
    });
  };
  // Metadata of decorators and other own properties are found on it.
  Object.setPrototypeOf(handler, original);
  Object.defineProperty(handler, 'name', { value: original.name, configurable: true });
  Object.defineProperty(handler, 'length', { value: original.length, configurable: true });
  noteWrapper(handler, original);
  TELLING.add(handler);
  return handler;
}
