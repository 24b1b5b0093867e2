import { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { types } from 'node:util';
import { StreamableFile } from '@nestjs/common';
import { EMPTY, isObservable, Observable, of, ReplaySubject, takeUntil, type Subscriber } from 'rxjs';
import type { Lock } from '../lock/lock.js';
import { LockConfigError, LockTimeoutError } from '../errors/lock-errors.js';
import type { LockOptions } from '../lock/options/lock-options.js';
import type { MethodCall, MethodInterceptor } from './method-interceptor.js';
import { LOCKS, mockedService, serviceOf } from './wiring/injected-services.js';

/** What `onBusy` is called with. */
export interface BusyCall {
  readonly keys: readonly string[];
  readonly args: readonly unknown[];
  readonly error: LockTimeoutError;
}

/** `'throw'`, `'skip'`, or a function whose value the call resolves to (an Observable emits it). */
export type OnBusy = 'throw' | 'skip' | ((busy: BusyCall) => unknown);

/** Acquires, runs the method, releases. The method never runs without the lock. */
export class DistributedLockInterceptor implements MethodInterceptor {
  constructor(
    private readonly keysOf: (args: readonly unknown[]) => string | readonly string[],
    private readonly options: LockOptions,
    private readonly onBusy: OnBusy,
  ) {}

  interceptPromise(call: MethodCall): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.runPromise(call, resolve).then(resolve, reject);
    });
  }

  interceptObservable(call: MethodCall): Observable<unknown> {
    return new Observable((subscriber) => {
      const unsubscribed = new AbortController();
      let began = false;
      const stream = async (lock: Lock) => {
        began = true;
        await untilStreamEnds(call.proceed() as Observable<unknown>, lock, subscriber);
      };
      const run = async () => {
        const options = { ...this.options, signal: joined(this.options.signal, unsubscribed.signal) };
        await serviceOf(LOCKS, call).withLock(this.keysOf(call.args), options, stream);
        if (!began) throw mockedService(LOCKS, call);
      };
      run().then(
        () => subscriber.complete(),
        (error: unknown) => {
          if (began || !(error instanceof LockTimeoutError)) subscriber.error(error);
          else this.busyStream(call, error).subscribe(subscriber);
        },
      );
      return () => unsubscribed.abort();
    });
  }

  /** A stream is handed over to the caller while the lock is still held for it. */
  private async runPromise(call: MethodCall, handOver: (result: unknown) => void): Promise<unknown> {
    let began = false;
    try {
      const value = await serviceOf(LOCKS, call).withLock(this.keysOf(call.args), this.options, async (lock) => {
        began = true;
        const result = await call.proceed();
        if (isObservable(result)) throw undeclaredObservable(call);
        const stream = nodeStreamOf(result);
        if (stream) await untilNodeStreamCloses(stream, lock, () => handOver(result));
        else if (isReadLater(result)) throw readLater(call);
        return result;
      });
      if (!began) throw mockedService(LOCKS, call);
      return value;
    } catch (error) {
      if (began || !(error instanceof LockTimeoutError) || this.onBusy === 'throw') throw error;
      return this.onBusy === 'skip' ? undefined : this.onBusy({ keys: error.keys, args: call.args, error });
    }
  }

  private busyStream(call: MethodCall, error: LockTimeoutError): Observable<unknown> {
    if (this.onBusy === 'skip') return EMPTY;
    return new Observable((subscriber) => {
      if (this.onBusy === 'throw' || this.onBusy === 'skip') return subscriber.error(error);
      const value = this.onBusy({ keys: error.keys, args: call.args, error });
      (isObservable(value) ? value : of(value)).subscribe(subscriber);
    });
  }
}

/** Settles when the stream ends or its reader leaves; rejects as soon as the lock is lost. */
function untilStreamEnds(stream: Observable<unknown>, lock: Lock, subscriber: Subscriber<unknown>): Promise<void> {
  const { signal } = lock;
  const ended = new AbortController();
  return new Promise<void>((resolve, reject) => {
    // Before the source is subscribed to, which may emit all that it has at once; the reader may have left already.
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

function nodeStreamOf(result: unknown): Readable | undefined {
  const stream: unknown = result instanceof StreamableFile ? result.getStream() : result;
  return stream instanceof Readable ? stream : undefined;
}

/** What a generator yields, or another async iterable, is made while it is read. */
function isReadLater(result: unknown): boolean {
  if (typeof result !== 'object' || result === null) return false;
  return types.isGeneratorObject(result) || Symbol.asyncIterator in result;
}

/** Settles when the stream has ended, failed or was destroyed; destroys it as soon as the lock is lost. */
async function untilNodeStreamCloses(stream: Readable, lock: Lock, handOver: () => void): Promise<void> {
  const { signal } = lock;
  try {
    signal.throwIfAborted();
    handOver();
    await finished(stream, { writable: false, signal });
  } catch {
    if (!signal.aborted) return;
    // Without a listener, the error of a stream that nobody reads would end the process.
    stream.on('error', () => {});
    stream.destroy(signal.reason);
    throw signal.reason;
  }
}

function undeclaredObservable({ name }: MethodCall): LockConfigError {
  return new LockConfigError(
    `${name} returned an Observable without being declared to: the lock cannot cover it. Declare the return type as ` +
      'Observable<...>, with emitDecoratorMetadata on, and return it without a promise around it',
  );
}

function readLater({ name }: MethodCall): LockConfigError {
  return new LockConfigError(
    `${name} resolved to an iterable that is read after the lock is given back; return what it holds, read to its end, or a ` +
      'Node.js Readable, which keeps the lock until it has ended: Readable.from(iterable)',
  );
}

function joined(...signals: (AbortSignal | undefined)[]): AbortSignal {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}
