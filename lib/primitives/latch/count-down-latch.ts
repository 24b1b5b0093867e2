import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import type { LatchStore } from '../../contracts/primitive-stores.js';
import type { Pending } from '../../contracts/store.js';
import { isThrown } from '../../errors/limited-log.js';
import {
  LatchNotDefinedError,
  LatchTimeoutError,
  PrimitiveKeyError,
  type PrimitiveBackendError,
} from '../../errors/primitive-errors.js';
import { latchChannels, type LatchFailed, type LatchEvent } from '../../events/latch-channels.js';
import type { LockSource } from '../../events/lock-channels.js';
import { whyNotAName } from '../../keys/key-part.js';
import { primitiveOption } from '../../options/option-checks.js';
import { listenToAbort } from '../../timing/abort-listeners.js';
import { mayEnd, mustNotEnd, type Timeout, Timeouts } from '../../timing/clock.js';
import { PrimitiveRuntime } from '../runtime.js';
import {
  latchBackend,
  latchDefinition,
  latchWait,
  type LatchDefinition,
  type LatchOptions,
  type LatchWaitOptions,
} from './latch-options.js';
import { LatchWatch, type LatchWaiter, READING } from './latch-watch.js';

/**
 * Lets calls wait until a number of others have arrived, over all processes. A latch opens once and stays open until
 * its `ttl` is over; give each run of a job a latch of its own, as with `import:<job id>`. Provided by
 * `RedisLockModule`.
 */
@Injectable()
export class CountDownLatch {
  private readonly watches = new Map<string | undefined, LatchWatch>();
  private readonly cancels = new Set<() => void>();
  private readonly timeouts = new Timeouts();
  private draining = false;

  /** @internal */
  constructor(@Inject(PrimitiveRuntime) private readonly runtime: PrimitiveRuntime) {
    runtime.backends.whenDraining(async () => this.refuseAll());
  }

  /**
   * Defines a latch that `count` arrivals open. Does nothing if it is defined with this count already, whatever has
   * arrived, so that every process may define it.
   *
   * @throws PrimitiveConfigError when there is a latch of that name with another count
   * @throws PrimitiveBackendError when the backend fails, or the application has ended
   */
  async define(key: string, definition: LatchDefinition & LatchOptions): Promise<void> {
    const name = nameOf(key);
    const { count, ttl, backend } = latchDefinition(definition);
    const state = await this.call('definition of latch', name, backend, (store) => store.define({ name, count, ttl }));
    if (state.count === count) return;
    throw primitiveOption.refused('count', count, `${state.count}, as latch "${name}" has it, or another name`);
  }

  /**
   * Counts one arrival, and resolves to how many are missing then. An arrival with an id that the latch has seen counts
   * nothing, so that work that is repeated counts once; without an id, each call is an arrival of its own.
   *
   * @throws LatchNotDefinedError when there is no such latch, or its `ttl` is over
   * @throws PrimitiveBackendError when the backend fails, or the application has ended; with an id, call it again
   */
  async countDown(key: string, arrivalId: string = randomUUID(), options: LatchOptions = {}): Promise<number> {
    const name = nameOf(key);
    primitiveOption.require(
      whyNotAName(arrivalId) === undefined,
      'arrivalId',
      arrivalId,
      'a text, such as the id of the job',
    );
    const backend = latchBackend(options);
    const arrival = { name, arrival: arrivalId };
    const state = await this.call('arrival at latch', name, backend, (store) => store.arrive(arrival));
    if (!state) throw new LatchNotDefinedError(name);
    const { remaining } = state;
    const { source } = this.watchOf(backend);
    if (latchChannels.countedDown.hasSubscribers) {
      latchChannels.countedDown.publish({ ...latchEvent(source, name), arrivalId, remaining });
    }
    return remaining;
  }

  /**
   * How many arrivals are missing: 0 when the latch is open, `null` when there is none.
   *
   * @throws PrimitiveBackendError when the backend fails, or the application has ended
   */
  async count(key: string, options: LatchOptions = {}): Promise<number | null> {
    const name = nameOf(key);
    const state = await this.call(READING, name, latchBackend(options), (store) => store.look(name));
    return state?.remaining ?? null;
  }

  /**
   * Resolves when the latch is open: at once if it is already. If it is not defined yet, waits for its definition too.
   *
   * @throws LatchTimeoutError when it is not open after `wait` ms
   * @throws PrimitiveBackendError when the backend fails until `wait` has passed, when it refuses for good, or when the
   * application is shutting down
   * @throws the reason of `options.signal`
   */
  async await(key: string, options: LatchWaitOptions = {}): Promise<void> {
    const name = nameOf(key);
    const { wait, signal, backend } = latchWait(options);
    signal?.throwIfAborted();
    const watch = this.watchOf(backend);
    if (this.draining) throw shuttingDown(watch, name);
    await new Promise<void>((resolve, reject) => {
      const startedAt = performance.now();
      let remaining: number | undefined;
      let failure: PrimitiveBackendError | undefined;
      let timeout: Timeout | undefined;
      mustNotEnd();
      const end = () => {
        mayEnd();
        timeout?.leave();
        abortion?.leave();
        watch.remove(name, waiter);
        this.cancels.delete(cancel);
      };
      const giveUp = (error: unknown, reason: LatchFailed['reason']) => {
        end();
        reject(error);
        publishRefusal(watch.source, name, startedAt, error, reason);
      };
      const refuse = () =>
        giveUp(failure ?? new LatchTimeoutError(name, { waited: performance.now() - startedAt, remaining }), 'backend');
      // The first look decides, even if its answer comes later than the end of the wait, by one `commandTimeout` at
      // most: it may have to wait for another look to end.
      let [looked, timeIsUp] = [false, wait === 0];
      const { calls } = watch;
      const { commandTimeout, limits } = calls;
      const tooLate = () => {
        failure ??= calls.gaveUp(READING, name, `no answer within ${commandTimeout} ms`);
        refuse();
      };
      const expire = () => {
        timeIsUp = true;
        if (looked) refuse();
        else timeout = limits.start(commandTimeout, { expire: tooLate });
      };
      const told = () => {
        looked = true;
        if (timeIsUp) refuse();
      };
      const waiter: LatchWaiter = {
        opened: () => {
          end();
          if (latchChannels.opened.hasSubscribers) publishOpened(watch.source, name, startedAt);
          resolve();
        },
        looked: (state) => {
          [remaining, failure] = [state?.remaining, undefined];
          told();
        },
        failed: (error) => {
          failure = error;
          // Nobody waits for it to change its mind.
          timeIsUp ||= calls.goesOnRefusing(error);
          told();
        },
      };
      const cancel = () => giveUp(shuttingDown(watch, name), 'shutdown');
      const abortion = signal && listenToAbort(signal, () => giveUp(signal.reason, 'aborted'));
      if (wait === 0) expire();
      else if (wait !== Infinity) timeout = this.timeouts.start(wait, { expire });
      this.cancels.add(cancel);
      watch.add(name, waiter);
    });
  }

  /** @throws PrimitiveBackendError when the backend fails, or the application has ended */
  private async call<T>(
    operation: string,
    name: string,
    backend: string | undefined,
    send: (store: LatchStore) => Pending<T>,
  ): Promise<T> {
    const { calls, store } = this.watchOf(backend);
    if (this.runtime.isStopped) throw calls.failure(operation, name, 'the application has ended');
    return calls.run(operation, name, () => send(store));
  }

  private refuseAll(): void {
    this.draining = true;
    for (const cancel of this.cancels) cancel();
  }

  private watchOf(backend: string | undefined): LatchWatch {
    let watch = this.watches.get(backend);
    if (!watch) this.watches.set(backend, (watch = new LatchWatch(this.runtime.home('Latches', backend))));
    return watch;
  }
}

function shuttingDown({ calls }: LatchWatch, name: string): Error {
  return calls.failure('wait for latch', name, 'the application is shutting down');
}

/** @throws PrimitiveKeyError */
function nameOf(key: unknown): string {
  const why = whyNotAName(key);
  if (why) throw new PrimitiveKeyError(`Latch key is ${why}; give a string of one character or more`);
  return key as string;
}

/** What all events of a latch have in common. */
function latchEvent({ backend, label }: LockSource, key: string): LatchEvent {
  return { key, backend, label };
}

function publishOpened(source: LockSource, key: string, startedAt: number): void {
  latchChannels.opened.publish({ ...latchEvent(source, key), waited: performance.now() - startedAt });
}

/** Publishes why a wait ended before the latch opened; `reason` where the time was not why. */
function publishRefusal(
  source: LockSource,
  key: string,
  startedAt: number,
  error: unknown,
  reason: LatchFailed['reason'],
): void {
  const { timedOut, failed } = latchChannels;
  const late = isThrown(error, LatchTimeoutError);
  if (!(late ? timedOut : failed).hasSubscribers) return;
  const event = { ...latchEvent(source, key), waited: performance.now() - startedAt };
  if (late) timedOut.publish({ ...event, remaining: error.remaining });
  else failed.publish({ ...event, reason, error });
}
