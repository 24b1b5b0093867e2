import { AsyncLocalStorage } from 'node:async_hooks';
import { METHOD_METADATA, PATH_METADATA } from '@nestjs/common/constants.js';
import type { ModulesContainer } from '@nestjs/core';
import { defer, finalize, isObservable, tap } from 'rxjs';
import { isSent, rawOf, type HttpResponse, whenHeadIsSent } from './http-response.js';

type Handler = (this: unknown, ...args: unknown[]) => unknown;

/** How the handler ended. */
export type HandlerEnd = { readonly value: unknown } | { readonly error: unknown } | 'unsubscribed';

/** Who has sent the answer: the code of this run, or an interceptor above it, a filter or a middleware. */
type Sender = 'inside' | 'outside';

const runs = new AsyncLocalStorage<HandlerRun>();

/** The handlers that tell their run when they begin and end. */
const TELLING = new WeakSet<object>();

/**
 * One run of what stands below an interceptor: interceptors, pipes and the handler. Tells these apart: whether the
 * handler itself began, and how it ended; and tells who sent the answer, by the asynchronous context of the sender.
 */
export class HandlerRun {
  /** Resolves when the handler that began has ended. */
  readonly ended: Promise<HandlerEnd>;
  /** What it has done so far to the answer; counts where somebody else has sent it. */
  private readonly own = new Map<string, string | string[]>();
  private status: number;
  private sender: Sender | undefined;
  private settle!: (end: HandlerEnd) => void;
  private called = false;
  private over = false;
  private left = false;
  /** Whether the handler has made an Observable to which nobody has subscribed. */
  private idle = false;

  constructor(
    private readonly handler: object,
    private readonly response: HttpResponse,
  ) {
    this.status = response.statusCode;
    this.ended = new Promise((resolve) => {
      this.settle = (end) => {
        this.over = true;
        resolve(end);
      };
    });
  }

  /** Whether the handler has begun; one that does not tell counts as begun. */
  get begun(): boolean {
    return this.called || !TELLING.has(this.handler);
  }

  /** Whether the handler has begun and goes on. */
  get goesOn(): boolean {
    return this.called && !this.over;
  }

  /** Whether somebody else has sent an answer. */
  get isForeign(): boolean {
    return this.sender === 'outside';
  }

  /** Whether the run has sent the answer by itself: a redirection, for instance. */
  get hasAnswered(): boolean {
    return this.sender === 'inside' || (this.sender === undefined && isSent(this.response));
  }

  /** Status and headers that the run itself has given: where somebody else answered, the response shows theirs. */
  get given(): { readonly status: number; readonly headers: ReadonlyMap<string, string | string[]> } {
    return { status: this.status, headers: this.own };
  }

  /** Calls it, and watches the response meanwhile. */
  async around<T>(body: () => Promise<T>): Promise<T> {
    this.watch();
    return runs.run(this, body);
  }

  /** Somebody has answered in the place of the handler: nobody subscribes any more to an Observable that it makes. */
  leave(): void {
    this.left = true;
    if (this.idle) this.settle('unsubscribed');
  }

  /** @internal Calls the handler. */
  static call(handler: object, original: () => unknown): unknown {
    const run = runs.getStore();
    if (!run || run.handler !== handler || run.called) return original();
    run.called = true;
    try {
      return run.watched(original());
    } catch (error) {
      run.settle({ error });
      throw error;
    }
  }

  private watched(result: unknown): unknown {
    if (isObservable(result)) {
      let value: unknown;
      if (this.left) this.settle('unsubscribed');
      this.idle = true;
      return defer(() => {
        this.idle = false;
        return result;
      }).pipe(
        tap({
          next: (each) => (value = each),
          complete: () => this.settle({ value }),
          error: (error: unknown) => this.settle({ error }),
        }),
        finalize(() => this.settle('unsubscribed')),
      );
    }
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

  /** Notes what the run gives to the response, and who sends it. */
  private watch(): void {
    const { response } = this;
    const raw = rawOf(response);
    const isInside = () => runs.getStore() === this;
    const send = () => {
      this.sender ??= isInside() ? 'inside' : 'outside';
    };
    whenHeadIsSent(response, send);
    // After the answer of somebody else, it would throw, and a handler that has done its work would seem to have failed.
    const record = (name: unknown, value: unknown): boolean => {
      if (!isInside()) return false;
      const text = Array.isArray(value) ? value.map(String) : String(value);
      this.own.set(String(name).toLowerCase(), text);
      return this.isForeign;
    };
    const targets: [target: object, method: string][] = [[raw, 'setHeader']];
    if ((response as object) !== raw) targets.push([response, 'header']);
    for (const [target, method] of targets) {
      const given = (target as Record<string, Handler | undefined>)[method];
      if (!given) continue;
      Object.defineProperty(target, method, {
        configurable: true,
        writable: true,
        value(this: unknown, ...args: unknown[]) {
          return args.length > 1 && record(args[0], args[1]) ? this : given.apply(this, args);
        },
      });
    }
    const property = Object.getOwnPropertyDescriptor(raw, 'statusCode');
    if (property && !property.configurable) return;
    let { statusCode } = raw;
    Object.defineProperty(raw, 'statusCode', {
      configurable: true,
      enumerable: true,
      get: () => statusCode,
      set: (status: number) => {
        if (isInside()) this.status = status;
        if (!isInside() || !this.isForeign) statusCode = status;
      },
    });
  }
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
  const handler: Handler = function (...args) {
    return HandlerRun.call(handler, () => original.apply(this, args));
  };
  // Metadata of decorators and other own properties are found on it.
  Object.setPrototypeOf(handler, original);
  Object.defineProperty(handler, 'name', { value: original.name, configurable: true });
  Object.defineProperty(handler, 'length', { value: original.length, configurable: true });
  TELLING.add(handler);
  return handler;
}
