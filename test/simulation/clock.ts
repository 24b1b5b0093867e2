// Replaces what code sees of time and chance by that of the simulated process that runs: timers, immediates, both
// clocks, random numbers and UUIDs. Microtasks and process.nextTick stay those of Node.js.

import { AsyncResource } from 'node:async_hooks';
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import timersPromises from 'node:timers/promises';
import { installContext, leaveContext } from './async-context.js';
import type { Random } from './redis/random.js';

/** What the replaced functions need of a simulated process. */
export interface ProcessClock {
  /** For `Math.random` and UUIDs. */
  readonly random: Random;
  monotonic(): number;
  wall(): number;
  arm(timer: SimulatedTimer): void;
  disarm(timer: SimulatedTimer): void;
  addImmediate(immediate: SimulatedImmediate): void;
  dropImmediate(immediate: SimulatedImmediate): void;
}

type Callback = (...args: unknown[]) => void;

const real = { setImmediate, now: performance.now.bind(performance) };
const LONGEST_DELAY = 2 ** 31 - 1;
let running: ProcessClock | undefined;

/** Milliseconds of the real clock. */
export function realNow(): number {
  return real.now();
}

/** Runs `body` in a task of its own, as `runAs` needs it. */
export function inTask<T>(body: () => T): Promise<T> {
  return new Promise((resolve, reject) =>
    real.setImmediate(() => {
      try {
        resolve(body());
      } catch (error) {
        reject(error);
      }
    }),
  );
}

/**
 * Runs `body` as code of the process, and then all microtasks and ticks that it sets off, as Node.js does after each
 * callback. Not from a microtask: there is nothing to wait for inside of one.
 */
export function runAs<T>(process: ProcessClock, body: () => T): T {
  if (running) {
    if (running !== process) throw new Error('Code of one simulated process runs code of another');
    return body();
  }
  running = process;
  try {
    const result = body();
    leaveContext();
    settle();
    return result;
  } finally {
    running = undefined;
  }
}

/** What Node.js itself calls after each callback: only so does a schedule take no turns of the real event loop. */
const settle = Reflect.get(globalThis.process, '_tickCallback') as () => void;

export class SimulatedTimer {
  readonly delay: number;
  /** When it fires, in ms of its process. */
  due = 0;
  readonly run: () => void;
  private referenced = true;

  constructor(
    readonly process: ProcessClock,
    callback: Callback,
    args: readonly unknown[],
    delay: number | undefined,
    readonly repeats: boolean,
  ) {
    this.delay = delay !== undefined && delay >= 1 && delay <= LONGEST_DELAY ? Math.trunc(delay) : 1;
    const resource = new AsyncResource('Timer');
    this.run = () => resource.runInAsyncScope(callback, this, ...args);
    process.arm(this);
  }

  ref(): this {
    this.referenced = true;
    return this;
  }

  unref(): this {
    this.referenced = false;
    return this;
  }

  hasRef(): boolean {
    return this.referenced;
  }

  refresh(): this {
    this.process.arm(this);
    return this;
  }

  close(): this {
    this.process.disarm(this);
    return this;
  }
}

export class SimulatedImmediate {
  readonly run: () => void;

  constructor(
    readonly process: ProcessClock,
    callback: Callback,
    args: readonly unknown[],
  ) {
    const resource = new AsyncResource('Immediate');
    this.run = () => resource.runInAsyncScope(callback, undefined, ...args);
    process.addImmediate(this);
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}

/** Code that belongs to no process, such as a module that starts a timer when it is loaded, gets the real functions. */
export function installClock(): void {
  const before = { setTimeout, setInterval, clearTimeout, clearInterval, setImmediate, clearImmediate };
  const timer =
    (name: 'setTimeout' | 'setInterval') =>
    (callback: Callback, delay?: number, ...args: unknown[]): unknown =>
      running
        ? new SimulatedTimer(running, callback, args, delay, name === 'setInterval')
        : before[name](callback, delay, ...args);
  const clear = (name: 'clearTimeout' | 'clearInterval') => (timerOrId: unknown) => {
    if (timerOrId instanceof SimulatedTimer) timerOrId.close();
    else before[name](timerOrId as NodeJS.Timeout);
  };
  Object.assign(globalThis, {
    setTimeout: timer('setTimeout'),
    setInterval: timer('setInterval'),
    clearTimeout: clear('clearTimeout'),
    clearInterval: clear('clearInterval'),
    setImmediate: (callback: Callback, ...args: unknown[]): unknown =>
      running ? new SimulatedImmediate(running, callback, args) : before.setImmediate(callback, ...args),
    clearImmediate: (immediate: unknown) => {
      if (immediate instanceof SimulatedImmediate) immediate.process.dropImmediate(immediate);
      else before.clearImmediate(immediate as NodeJS.Immediate);
    },
  });
  replaceClocks();
  replaceChance();
  installContext();
  Object.assign(timersPromises, { setTimeout: sleep });
  syncBuiltinESMExports();
}

function replaceClocks(): void {
  const wallBefore = Date.now;
  performance.now = () => (running ? running.monotonic() : real.now());
  Date.now = () => (running ? running.wall() : wallBefore());
}

function replaceChance(): void {
  const { random } = Math;
  Math.random = () => (running ? running.random.next() : random());
  const { randomUUID, randomBytes } = crypto;
  Object.assign(crypto, {
    randomUUID: (...args: Parameters<typeof randomUUID>) => (running ? running.random.uuid() : randomUUID(...args)),
    randomBytes: (size: number) =>
      running ? Buffer.from(Array.from({ length: size }, () => running?.random.below(256) ?? 0)) : randomBytes(size),
  });
}

function sleep(delay?: number, value?: unknown, { signal }: { signal?: AbortSignal } = {}): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const aborted = () =>
      Object.assign(new Error('The operation was aborted'), { name: 'AbortError', code: 'ABORT_ERR' });
    if (signal?.aborted) return reject(aborted());
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve(value);
    }, delay);
    const abort = () => {
      clearTimeout(timer);
      reject(aborted());
    };
    signal?.addEventListener('abort', abort, { once: true });
    return undefined;
  });
}
