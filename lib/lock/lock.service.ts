import { Inject, Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { isThrown, textOf } from '../errors/limited-log.js';
import { LockKeyError, LockTimeoutError } from '../errors/lock-errors.js';
import { quoted, whyNotAName } from '../keys/key-part.js';
import { OptionResolver } from '../options/fixed-options.js';
import { lockOption } from '../options/option-checks.js';
import { HoldContext } from './hold/hold-context.js';
import { HoldTaker } from './hold/hold-taker.js';
import type { Lock, LockInfo, LockPage } from './hold/lock.js';
import type { FirstRequest, HoldRequest } from './line/caller.js';
import { LockBackends } from './line/lock-backends.js';
import type { QueueingBackend } from './line/named-backend.js';
import { LockInspection } from './lock-inspection.js';
import type { LockListOptions } from './options/list-options.js';
import { resolveLockOptions, type LockOptions, type ResolvedLockOptions } from './options/lock-options.js';

/** Takes, inspects and releases locks. Provided by `RedisLockModule`. */
@Injectable()
export class LockService implements OnModuleInit, OnApplicationShutdown {
  private readonly context = new HoldContext();
  private readonly taker: HoldTaker;
  private readonly inspection: LockInspection;
  private readonly requests: OptionResolver<LockOptions, HoldRequest>;
  private requestOfDefaults: HoldRequest | undefined;
  /** The defaults of `tryAcquire`. */
  private readonly oneTry: ResolvedLockOptions;
  private stopped = false;

  /** @internal */
  constructor(@Inject(LockBackends) private readonly backends: LockBackends) {
    this.taker = new HoldTaker(backends, this.context);
    this.inspection = new LockInspection(backends, this.taker);
    const { defaults } = backends.options;
    this.requests = new OptionResolver((options) => this.taker.request(resolveLockOptions(options, defaults)));
    this.oneTry = { ...defaults, wait: 0 };
  }

  /**
   * Takes the lock, or all of several at once. The caller releases it: `await using`, or `release()`.
   *
   * Opens no scope: a second call for the same name waits, even in the same function. See `withLock`.
   *
   * Keep a reference to the `Lock` while you hold it. A `Lock` that is garbage-collected without a release is no longer
   * renewed: the service logs a warning, and the lease ends. Once this service has released by name what an `acquire`
   * got, it no longer takes a `Lock` for forgotten.
   *
   * @throws LockTimeoutError when the lock is busy for `wait` ms
   * @throws LockBackendError when the backend fails until `wait` has passed
   * @throws the reason of `options.signal`
   */
  acquire(key: string | readonly string[], options?: LockOptions): Promise<Lock> {
    // Not an asynchronous function around another one: a call that waits would keep the state of both.
    try {
      return this.acquireAs(namesOf(key), this.requestOf(options));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Tries once, unless the call itself gives `wait`. `null` when the lock is busy.
   *
   * @throws LockBackendError when the backend fails
   */
  async tryAcquire(key: string | readonly string[], options: LockOptions = {}): Promise<Lock | null> {
    try {
      const request = this.taker.request(resolveLockOptions(options, this.oneTry));
      return await this.acquireAs(namesOf(key), request);
    } catch (error) {
      if (isThrown(error, LockTimeoutError)) return null;
      throw error;
    }
  }

  /**
   * Runs `body` inside the lock and releases it afterwards. Calls for the same name inside the body enter at once.
   *
   * An error of the body reaches the caller unchanged. A result stands if the lock was still trusted when the body
   * ended, unless the backend answers, within the lease, that the lock had been taken away. With `release:
   * 'background'` it does not wait for that answer.
   *
   * @throws LockLostError when the lock was lost or taken away before the body ended; how much took effect is unknown
   * @throws what `acquire` throws; the body did not run
   */
  withLock<T>(key: string | readonly string[], body: (lock: Lock) => Promise<T>): Promise<T>;
  withLock<T>(
    key: string | readonly string[],
    options: LockOptions | undefined,
    body: (lock: Lock) => Promise<T>,
  ): Promise<T>;
  /** @internal With a first request of the caller's own, which it rejects with if that was `answered`. */
  withLock<T>(
    key: string,
    options: LockOptions,
    body: (lock: Lock) => Promise<T>,
    first: FirstRequest | undefined,
  ): Promise<T>;
  async withLock<T>(
    key: string | readonly string[],
    optionsOrBody: LockOptions | ((lock: Lock) => Promise<T>) | undefined,
    bodyAfterOptions?: (lock: Lock) => Promise<T>,
    first?: FirstRequest,
  ): Promise<T> {
    const options = bodyAfterOptions ? (optionsOrBody as LockOptions | undefined) : undefined;
    const body = bodyAfterOptions ?? (optionsOrBody as (lock: Lock) => Promise<T>);
    if (typeof body !== 'function') throw lockOption.refused('body', body, 'the function that runs inside the lock');
    const request = this.requestOf(options);
    let lock = await this.taker.take(namesOf(key), request, first);
    while (lock.remaining() === 0) lock = await this.taker.takeAgain(lock, request);
    let result: T;
    try {
      result = await this.context.run(lock, body);
    } catch (error) {
      const end = lock.finish();
      if (end) lock.settle(await end);
      throw error;
    }
    const lost = lock.remaining() > 0 ? undefined : await lock.lostOnceRead();
    const end = lock.finish(lost ? undefined : true);
    if (end && lock.settle(await end)) throw lost ?? lock.lost;
    if (lost) throw lost;
    return result;
  }

  /**
   * Releases by name the innermost hold of this async context: the one around the running code (of `withLock` or of a
   * decorated method, which ends with it), or the one that its last `acquire` of exactly these names got. The context
   * is followed through `await` and into the calls made after; a hold of another context is never released.
   *
   * @throws LockKeyError when this context has no such hold; the message names the holder
   * @throws LockLostError when the hold had been lost
   */
  async release(key: string | readonly string[]): Promise<void> {
    const names = namesOf(key);
    const hold = this.context.holdOf(names);
    if (!hold) throw new LockKeyError(await this.notHeld(names), names);
    if (hold !== this.current()) this.taker.dropped.releasedByName();
    await hold.release();
  }

  /** The innermost lock of this async context: that of the surrounding `withLock` or decorated method. */
  current(): Lock | undefined {
    return this.context.scope?.hold;
  }

  /**
   * The holder of the name, which may be a foreign client; `null` when nobody holds it.
   *
   * @throws LockBackendError when the backend fails
   */
  async inspect(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<LockInfo | null> {
    return this.inspectAs('inspect', key, options);
  }

  /**
   * One page of the locks that any client holds and whose names match a glob of Redis (`*`, `?`, `[abc]`, `\\` before a
   * literal character). A page may have fewer locks than `limit`, or none, and still have a `cursor`. A lock that is
   * held from the first page to the last is on one page at least, unless the store restarts or a slot is moved.
   *
   * @throws LockConfigError for options that it cannot take, and where the backend cannot list its locks
   * @throws LockBackendError when the backend fails
   */
  async list(pattern = '*', options: LockListOptions = {}): Promise<LockPage> {
    return this.inspection.list(pattern, options);
  }

  /**
   * Whether anybody holds the name, be it a foreign client. The answer may be out of date when it arrives: to take the
   * name only if it is free, use `tryAcquire`.
   *
   * @throws LockBackendError when the backend fails
   */
  async isLocked(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<boolean> {
    return (await this.inspectAs('isLocked', key, options)) !== null;
  }

  /**
   * Takes the name from any holder; `false` when nobody held it. A holder in this instance loses the lock at once; one
   * elsewhere when the backend's message reaches it, at the latest with its next renewal.
   *
   * @throws LockBackendError when the backend fails
   */
  async forceRelease(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<boolean> {
    const { backend, name } = this.single('forceRelease', key, options);
    const owners = await backend.calls.forceRelease(name);
    if (owners === null) return false;
    for (const owner of [owners].flat()) for (const hold of this.taker.all()) hold.revoke(backend, owner);
    backend.watchdog.lose([owners].flat(), 'taken');
    return true;
  }

  /** @internal The backend of that name, and how many locks are held at it and waited for, for health checks. */
  backendState(name: string | undefined): { backend: QueueingBackend; held: number; waiting: number } {
    const backend = this.backends.ofCall(name);
    return { backend, ...this.taker.countsAt(backend) };
  }

  /** Whether the application has ended, and its locks with it. */
  get closed(): boolean {
    return this.stopped;
  }

  /** @internal */
  async onModuleInit(): Promise<void> {
    await this.backends.check();
  }

  /** @internal */
  async onApplicationShutdown(): Promise<void> {
    await Promise.all([this.taker.shutDown(this.backends.locksAround()), this.backends.drain()]);
    try {
      await this.backends.stop();
    } finally {
      this.stopped = true;
    }
  }

  private acquireAs(names: readonly string[], request: HoldRequest): Promise<Lock> {
    const { context, taker } = this;
    const acquisition = context.acquiring(names, request.options.renewal && taker.dropped.origin());
    try {
      return taker.take(names, request, undefined, acquisition);
    } catch (error) {
      acquisition.close();
      throw error;
    }
  }

  private requestOf(options: LockOptions | undefined): HoldRequest {
    if (options !== undefined) return this.requests.ofFixed.get(options) ?? this.requests.settingsOf(options);
    return (this.requestOfDefaults ??= this.taker.request(resolveLockOptions({}, this.backends.options.defaults)));
  }

  private inspectAs(method: string, key: string, options: Pick<LockOptions, 'backend'>): Promise<LockInfo | null> {
    const { backend, name } = this.single(method, key, options);
    return this.inspection.inspect(backend, name);
  }

  private single(method: string, key: string, options: Pick<LockOptions, 'backend'>) {
    const [name, ...others] = namesOf(key);
    if (name === undefined || others.length > 0) throw new LockKeyError('Give one name, not several', namesOf(key));
    return { backend: this.backends.ofCall(lockOption.backendOf(method, options)), name };
  }

  private async notHeld(names: readonly string[]): Promise<string> {
    const holders = await this.inspection.describe(names);
    return `The running code neither holds nor acquired ${quoted(names)}: ${holders}. Call release() on the Lock itself`;
  }
}

/** One valid name, which is the usual case, is checked in place. */
function namesOf(key: string | readonly string[]): readonly string[] {
  const only: unknown = Array.isArray(key) && key.length === 1 ? key[0] : key;
  return typeof only === 'string' && only !== '' && only.isWellFormed() ? [only] : lockNames(key);
}

/** Redis serves no other client while it takes several names in one step; for these it needs about 0.1 s. */
const MOST_NAMES = 1_000;

/** The names of a lock, sorted and without duplicates, so that all callers take several in the same order. */
function lockNames(key: string | readonly string[]): readonly string[] {
  const names = typeof key === 'string' ? [key] : key;
  if (!Array.isArray(names) || names.length === 0) {
    throw new LockKeyError(`Lock key is ${Array.isArray(key) ? 'an empty list' : textOf(key)}; give one name or more`);
  }
  for (const name of names as readonly unknown[]) {
    const why = whyNotAName(name);
    if (why) throw new LockKeyError(`Lock key is ${why}; give a string of one character or more`);
  }
  const own = [...new Set(names as readonly string[])].toSorted();
  if (own.length <= MOST_NAMES) return own;
  throw new LockKeyError(
    `Lock key has ${own.length} names; give at most ${MOST_NAMES}, because they are taken in one step: lock what they ` +
      'have in common, or take them in several calls, one after the other',
  );
}
