import { Inject, Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import type { HeldLock } from './held-lock.js';
import { HoldRegistry } from './hold-registry.js';
import { HoldTaker } from './hold-taker.js';
import type { Lock, LockInfo } from './lock.js';
import { LockBackends } from './lock-backends.js';
import { LockKeyError, LockTimeoutError } from './lock-errors.js';
import { lockNames } from './lock-names.js';
import { resolveLockOptions, type LockOptions, type ResolvedLockOptions } from './lock-options.js';

/** Takes and inspects locks. Injected, from `RedisLockModule`. */
@Injectable()
export class LockService implements OnModuleInit, OnApplicationShutdown {
  private readonly registry = new HoldRegistry();
  private readonly taker: HoldTaker;
  private stopped = false;

  /** @internal */
  constructor(@Inject(LockBackends) private readonly backends: LockBackends) {
    this.taker = new HoldTaker(backends, this.registry);
  }

  /**
   * Takes the lock, or all of several at once. The caller gives it back: `await using`, or `release()`.
   *
   * It opens no scope: a second call for the same name waits, also within the same function. See `withLock`.
   *
   * @throws LockTimeoutError when it is busy for `wait` ms
   * @throws LockBackendError when the backend fails until `wait` has passed
   * @throws the reason of `options.signal`
   */
  async acquire(key: string | readonly string[], options: LockOptions = {}): Promise<Lock> {
    return this.taker.take(lockNames(key), this.resolve(options));
  }

  /**
   * One try, unless this very call gives `wait`. `null` when it is busy.
   *
   * @throws LockBackendError when the backend fails
   */
  async tryAcquire(key: string | readonly string[], options: LockOptions = {}): Promise<Lock | null> {
    try {
      return await this.acquire(key, { ...options, wait: options.wait ?? 0 });
    } catch (error) {
      if (error instanceof LockTimeoutError) return null;
      throw error;
    }
  }

  /**
   * Runs `body` inside the lock and gives it back after. Calls for the same name inside the body enter at once.
   *
   * An error of the body passes through untouched. A result stands if the lock was still trusted when the body ended.
   *
   * @throws LockLostError when the lock was lost before the body ended: what it did is then unknown
   * @throws what `acquire` throws, before the body began
   */
  withLock<T>(key: string | readonly string[], body: (lock: Lock) => Promise<T>): Promise<T>;
  withLock<T>(key: string | readonly string[], options: LockOptions, body: (lock: Lock) => Promise<T>): Promise<T>;
  async withLock<T>(
    key: string | readonly string[],
    optionsOrBody: LockOptions | ((lock: Lock) => Promise<T>),
    bodyAfterOptions?: (lock: Lock) => Promise<T>,
  ): Promise<T> {
    const options = bodyAfterOptions ? (optionsOrBody as LockOptions) : {};
    const body = bodyAfterOptions ?? (optionsOrBody as (lock: Lock) => Promise<T>);
    const lock = await this.taker.take(lockNames(key), this.resolve(options));
    let result: T;
    try {
      result = await this.taker.reentrancy.run(lock, body);
    } catch (error) {
      await lock.finish();
      throw error;
    }
    const { lost } = lock;
    const end = lock.finish();
    if (end) await end;
    if (lost) throw lost;
    return result;
  }

  /**
   * Releases by name: the innermost hold of this async context, else the only one that this instance has.
   *
   * @throws LockKeyError when this instance holds none of that name, or several
   * @throws LockLostError when it had been lost
   */
  async release(key: string | readonly string[]): Promise<void> {
    const names = lockNames(key);
    await this.holdOf(names).release();
  }

  /** The innermost lock of this async context: that of the decorated method or of the `withLock` around the call. */
  current(): Lock | undefined {
    for (const scope of this.taker.reentrancy.scopes()) return scope.hold;
    return undefined;
  }

  /**
   * Who holds the name, whoever it is; `null` when nobody does.
   *
   * @throws LockBackendError when the backend fails
   */
  async inspect(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<LockInfo | null> {
    const { backend, name } = this.single(key, options);
    const state = await backend.calls.inspect(name);
    const elsewhere = Math.max(0, (state?.waiting ?? 0) - (backend.queues?.queuedHere(name) ?? 0));
    return state && { ...state, waiting: elsewhere + this.taker.waitingFor(backend, name) };
  }

  /** @throws LockBackendError when the backend fails */
  async isLocked(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<boolean> {
    return (await this.inspect(key, options)) !== null;
  }

  /**
   * Frees the name whoever holds it; `false` when nobody did. A holder in this instance loses the lock at once, one
   * elsewhere with its next renewal.
   *
   * @throws LockBackendError when the backend fails
   */
  async forceRelease(key: string, options: Pick<LockOptions, 'backend'> = {}): Promise<boolean> {
    const { backend, name } = this.single(key, options);
    const owner = await backend.calls.forceRelease(name);
    if (owner === null) return false;
    for (const hold of this.registry.all()) hold.revoke(backend, owner);
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

  private resolve(options: LockOptions): ResolvedLockOptions {
    return resolveLockOptions(options, this.backends.options.defaults);
  }

  private single(key: string, { backend }: Pick<LockOptions, 'backend'>) {
    const [name, ...others] = lockNames(key);
    if (name === undefined || others.length > 0) throw new LockKeyError('Give one name, not several', lockNames(key));
    return { backend: this.backends.get(backend ?? this.backends.options.defaults.backend), name };
  }

  private holdOf(names: readonly string[]): HeldLock {
    for (const { hold } of this.taker.reentrancy.scopes()) if (sameNames(hold.keys, names)) return hold;
    const holds = this.registry.of(names);
    const [only = this.registry.lostOf(names)] = holds;
    if (only && holds.length <= 1) return only;
    const shown = names.map((name) => `"${name}"`).join(', ');
    const how = holds.length > 1 ? `${holds.length} holds` : 'no hold';
    throw new LockKeyError(`This instance has ${how} of exactly ${shown}; call release() on the Lock itself`, names);
  }
}

function sameNames(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((name, index) => name === others[index]);
}
