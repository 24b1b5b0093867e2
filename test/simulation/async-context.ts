// The async context as Node.js 24 keeps it: a frame that passes from each piece of code to what it sets off. Before 24,
// Node.js finds it by the async ids of all promises, which takes much of the time of a schedule.

import asyncHooks from 'node:async_hooks';
import { syncBuiltinESMExports } from 'node:module';
import { promiseHooks } from 'node:v8';

/** What each storage has. It never changes: another value makes another frame. */
type Frame = ReadonlyMap<object, unknown> | undefined;
type Callback = (...args: never[]) => unknown;

const FRAME = Symbol('frame');
const FIRST_WITH_FRAMES = 24;

let present: Frame;

/** The code that runs next was set off by nothing. */
export function leaveContext(): void {
  present = undefined;
}

/** Runs `callback` in the frame. */
function within<T>(frame: Frame, callback: () => T): T {
  const before = present;
  present = frame;
  try {
    return callback();
  } finally {
    present = before;
  }
}

/** The callback, in the frame of the code that runs now. */
function bound<F extends Callback>(callback: F): F {
  const frame = present;
  return ((...args: never[]) => within(frame, () => callback(...args))) as F;
}

/** What the library uses of `AsyncLocalStorage`. */
class Storage<T> {
  static snapshot(): (callback: Callback, ...args: never[]) => unknown {
    return bound((callback: Callback, ...args: never[]) => callback(...args));
  }

  getStore(): T | undefined {
    return present?.get(this) as T | undefined;
  }

  enterWith(value: T): void {
    present = new Map(present).set(this, value);
  }

  run<R>(value: T, callback: (...args: never[]) => R, ...args: never[]): R {
    return within(new Map(present).set(this, value), () => callback(...args));
  }

  exit<R>(callback: (...args: never[]) => R, ...args: never[]): R {
    return within(this.without(), () => callback(...args));
  }

  disable(): void {
    present = this.without();
  }

  private without(): Frame {
    const frame = new Map(present);
    frame.delete(this);
    return frame;
  }
}

/** What is used of `AsyncResource`. */
class Resource {
  private readonly frame = present;

  runInAsyncScope<R>(callback: (...args: never[]) => R, thisArg?: unknown, ...args: never[]): R {
    const before = present;
    present = this.frame;
    try {
      return Reflect.apply(callback, thisArg, args);
    } finally {
      present = before;
    }
  }
}

/** Before the library is loaded, which extends what is replaced here. */
export function installContext(): void {
  if (parseInt(process.versions.node, 10) >= FIRST_WITH_FRAMES) return;
  type Framed = Promise<unknown> & { [FRAME]?: Frame };
  promiseHooks.createHook({
    init: (promise: Framed) => {
      if (present) promise[FRAME] = present;
    },
    before: (promise: Framed) => {
      present = promise[FRAME];
    },
    after: leaveContext,
  });
  const { nextTick } = process;
  const { queueMicrotask: queue } = globalThis;
  process.nextTick = (callback: Callback, ...args: never[]) => nextTick(bound(callback), ...args);
  globalThis.queueMicrotask = (callback) => queue(bound(callback));
  Object.assign(asyncHooks, { AsyncLocalStorage: Storage, AsyncResource: Resource });
  syncBuiltinESMExports();
}
