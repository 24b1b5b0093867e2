import { Inject, Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { AcquiredLock } from './hold/acquired-lock.js';
import { DroppedLocks } from './hold/dropped-locks.js';
import { HoldContext } from './hold/hold-context.js';
import { HoldTaker, type HoldRequest } from './hold/hold-taker.js';
import type { Lock, LockInfo } from './lock.js';
import { LockBackends } from './backend/lock-backends.js';
import { LockKeyError, LockTimeoutError } from '../errors/lock-errors.js';
import { lockNames } from './options/lock-names.js';
import { fixedOptions, OptionResolver } from '../options/fixed-options.js';
import { lockOption } from '../options/option-checks.js';
import { resolveLockOptions, type LockOptions, type ResolvedLockOptions } from './options/lock-options.js';

const NO_OPTIONS: LockOptions = fixedOptions({});

/** Takes and inspects locks. Injected, from `RedisLockModule`. */
@Injectable()
export class LockService implements OnModuleInit, OnApplicationShutdown {
  private readonly context = new HoldContext();
  private readonly taker: HoldTaker;
  private readonly dropped: DroppedLocks;
  private readonly requests: OptionResolver<LockOptions, HoldRequest>;
  /** What `tryAcquire` takes for options that are not given. */
  private readonly oneTry: ResolvedLockOptions;
  private stopped = false;

  /** @internal */
  constructor(@Inject(LockBackends) private readonly backends: LockBackends) {
    this.taker = new HoldTaker(backends, this.context);
    this.dropped = new DroppedLocks(backends.logger);
    const { defaults } = backends.options;
    this.requests = new OptionResolver((options) => this.taker.request(resolveLockOptions(options, defaults)));
    this.oneTry = { ...defaults, wait: 0 };
  }

  /**
   * Takes the lock, or all of several at once. The caller gives it back: `await using`, or `release()`.
   *
   * It opens no scope: a second call for the same name waits, also within the same function. See `withLock`.
   *
   * Keep the `Lock` for as long as it is to be held: one that is garbage-collected without a release is not renewed any
   * more, with a warning, so that its lease ends it. Once this service has released by name what an `acquire` got, it
   * takes no `Lock` for forgotten any more.
   *
   * @throws LockTimeoutError when it is busy for `wait` ms
   * @throws LockBackendError when the backend fails until `wait` has passed
   * @throws the reason of `options.signal`
   */
  async acquire(key: string | readonly string[], options?: LockOptions): Promise<Lock> {
    return this.acquireAs(lockNames(key), this.requestOf(options));
  }

  /**
   * One try, unless this very call gives `wait`. `null` when it is busy.
   *
   * @throws LockBackendError when the backend fails
   */
  async tryAcquire(key: string | readonly string[], options: LockOptions = {}): Promise<Lock | null> {
    try {
      const request = this.taker.request(resolveLockOptions(options, this.oneTry));
      return await this.acquireAs(lockNames(key), request);
    } catch (error) {
      if (error instanceof LockTimeoutError) return null;
      throw error;
    }
  }

  private async acquireAs(names: readonly string[], request: HoldRequest): Promise<Lock> {
    const acquisition = this.context.acquiring(names);
    const { renewal } = request.options;
    const origin = renewal && this.dropped.origin();
    try {
      const hold = await this.taker.take(names, request);
      hold.context = acquisition;
      acquisition.granted(hold);
      const lock = new AcquiredLock(hold);
      if (renewal) this.dropped.watch(lock, hold, origin);
      return lock;
    } catch (error) {
      acquisition.close();
      throw error;
    }
  }

  /**
   * Runs `body` inside the lock and gives it back after. Calls for the same name inside the body enter at once.
   *
   * An error of the body passes through untouched. A result stands if the lock was still trusted when the body ended,
   * and the backend does not say, within the lease, that it had been taken away.
   *
   * @throws LockLostError when the lock was lost or taken away before the body ended: what it did is then unknown
   * @throws what `acquire` throws, before the body began
   */
  withLock<T>(key: string | readonly string[], body: (lock: Lock) => Promise<T>): Promise<T>;
  withLock<T>(
    key: string | readonly string[],
    options: LockOptions | undefined,
    body: (lock: Lock) => Promise<T>,
  ): Promise<T>;
  async withLock<T>(
    key: string | readonly string[],
    optionsOrBody: LockOptions | ((lock: Lock) => Promise<T>) | undefined,
    bodyAfterOptions?: (lock: Lock) => Promise<T>,
  ): Promise<T> {
    const options = bodyAfterOptions ? (optionsOrBody as LockOptions | undefined) : undefined;
    const body = bodyAfterOptions ?? (optionsOrBody as (lock: Lock) => Promise<T>);
    lockOption.require(typeof body === 'function', 'body', body, 'the function that runs inside the lock');
    const lock = await this.taker.take(lockNames(key), this.requestOf(options));
    let result: T;
    try {
      result = await this.context.run(lock, body);
    } catch (error) {
      await lock.finish();
      throw error;
    }
    const lost = lock.held ? undefined : await lock.lostOnceRead();
    const end = lock.finish();
    if (end && lock.wasTakenBefore(await end)) throw lost ?? lock.lost;
    if (lost) throw lost;
    return result;
  }

  /**
   * Releases by name the innermost hold of this async context: what it is inside of (that of `withLock` or of a
   * decorated method, which ends with it) or what it got by its last `acquire` of exactly these names. Both are
   * followed through `await` and into the calls made after; what another context holds is never released.
   *
   * @throws LockKeyError when this context has none; it says who has
   * @throws LockLostError when it had been lost
   */
  async release(key: string | readonly string[]): Promise<void> {
    const names = lockNames(key);
    const hold = this.context.holdOf(names);
    if (!hold) throw new LockKeyError(await this.notHeld(names), names);
    if (hold !== this.current()) this.dropped.releasedByName();
    await hold.release();
  }

  /** The innermost lock of this async context: that of the decorated method or of the `withLock` around the call. */
  current(): Lock | undefined {
    return this.context.scope?.hold;
  }

  /**
   * Who holds the name, also a foreign client; `null` when nobody does.
   *
   * @throws LockBackendError when the backend fails
   */
  async inspect(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<LockInfo | null> {
    const { backend, name } = this.single(key, options);
    const state = await backend.calls.inspect(name);
    const elsewhere = Math.max(0, (state?.waiting ?? 0) - (backend.contenders?.queuedHere(name) ?? 0));
    return state && { ...state, waiting: elsewhere + this.taker.waitingFor(backend, name) };
  }

  /** @throws LockBackendError when the backend fails */
  async isLocked(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<boolean> {
    return (await this.inspect(key, options)) !== null;
  }

  /**
   * Frees the name, also of another holder; `false` when nobody held it. A holder in this instance loses the lock at
   * once, one elsewhere when the backend's message reaches it, at the latest with its next renewal.
   *
   * @throws LockBackendError when the backend fails
   */
  async forceRelease(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<boolean> {
    const { backend, name } = this.single(key, options);
    const owner = await backend.calls.forceRelease(name);
    if (owner === null) return false;
    for (const hold of this.taker.all()) hold.revoke(backend, owner);
    return true;
  }

  /** Whether the application has ended, with every lock that it had. */
  get closed(): boolean {
    return this.stopped;
  }

  /** @internal */
  async onModuleInit(): Promise<void> {
    await this.backends.check();
  }

  /** @internal */
  async onApplicationShutdown(): Promise<void> {
    await this.taker.shutDown();
    await this.backends.stop();
    this.stopped = true;
  }

  private requestOf(options = NO_OPTIONS): HoldRequest {
    return this.requests.settingsOf(options);
  }

  private single(key: string, { backend }: Pick<LockOptions, 'backend'>) {
    const [name, ...others] = lockNames(key);
    if (name === undefined || others.length > 0) throw new LockKeyError('Give one name, not several', lockNames(key));
    return { backend: this.backends.get(backend ?? this.backends.options.defaults.backend), name };
  }

  private async notHeld(names: readonly string[]): Promise<string> {
    const holders = await Promise.all(names.map((name) => this.holderOf(name)));
    return (
      `The running code neither holds nor acquired ${names.map((name) => `"${name}"`).join(', ')}: ${holders.join(', ')}. ` +
      'Call release() on the Lock itself'
    );
  }

  private async holderOf(name: string): Promise<string> {
    try {
      const info = await this.inspect(name);
      return info
        ? `"${name}" is held by ${info.owner}${info.label === undefined ? '' : ` (${info.label})`}`
        : `nobody holds "${name}"`;
    } catch {
      return `who holds "${name}" is unknown`;
    }
  }
}
