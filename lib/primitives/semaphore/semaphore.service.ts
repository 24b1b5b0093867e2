import { AsyncLocalStorage } from 'node:async_hooks';
import { Inject, Injectable } from '@nestjs/common';
import { isThrown } from '../../errors/limited-log.js';
import { PrimitiveKeyError, SemaphoreTimeoutError } from '../../errors/primitive-errors.js';
import { whyNotAName } from '../../keys/key-part.js';
import { OptionResolver } from '../../options/fixed-options.js';
import { primitiveOption } from '../../options/option-checks.js';
import { PrimitiveRuntime } from '../runtime.js';
import type { HeldPermit, Permit } from './held-permit.js';
import { PermitSource } from './permit-source.js';
import {
  semaphoreLookup,
  semaphoreSettings,
  type SemaphoreLookup,
  type SemaphoreOptions,
  type SemaphoreSettings,
} from './semaphore-options.js';

/** What runs inside of `withPermit`; frames of other module instances may stand between. */
interface Frame {
  readonly service: SemaphoreService;
  readonly permit: HeldPermit;
  outer: Frame | undefined;
}

const frames = new AsyncLocalStorage<Frame>();

/**
 * The innermost frame whose body has not ended. Drops those that have: a body that starts the next one, and so on,
 * would otherwise keep all before it.
 */
function openFrame(frame: Frame | undefined): Frame | undefined {
  let open = frame;
  while (open?.permit.isReleased) open = open.outer;
  if (open) open.outer = openFrame(open.outer);
  return open;
}

/**
 * Counting semaphores: at most `permits` calls of one name at a time, over all processes. Provided by
 * `RedisLockModule`.
 *
 * A semaphore needs no set-up: each call says how many permits there are. Those that wait are served in order of
 * arrival, over all processes; where 16 calls of a process or more wait, it passes permits on among them for turns of
 * 10 ms.
 */
@Injectable()
export class SemaphoreService {
  private readonly sources = new Map<string | undefined, PermitSource>();
  private readonly settings = new OptionResolver<SemaphoreOptions, SemaphoreSettings>(semaphoreSettings);
  private draining = false;

  /** @internal */
  constructor(@Inject(PrimitiveRuntime) private readonly runtime: PrimitiveRuntime) {
    const { backends } = runtime;
    backends.whenDraining(async () => {
      this.draining = true;
      const asking = this.permitsAround();
      const all = Array.from(this.sources.values(), (source) => source.drain(backends.options.shutdownGrace, asking));
      await Promise.all(all);
    });
  }

  /**
   * Takes permits. The caller gives them back: `await using`, or `release()` in `finally`. Until then the lease is
   * renewed for as long as the process lives, even if the `Permit` is forgotten.
   *
   * @throws SemaphoreTimeoutError when not enough permits were free for `wait` ms
   * @throws PrimitiveBackendError when the backend fails until `wait` has passed, or the application is shutting down
   * @throws the reason of `options.signal`
   */
  async acquire(key: string, options: SemaphoreOptions): Promise<Permit> {
    return this.takeHeld(key, this.settings.settingsOf(options));
  }

  /**
   * Tries once, unless the call itself gives `wait`. `null` when not enough permits are free, or others wait for them.
   *
   * @throws PrimitiveBackendError when the backend fails
   */
  async tryAcquire(key: string, options: SemaphoreOptions): Promise<Permit | null> {
    const settings = this.settings.settingsOf(options);
    try {
      return await this.takeHeld(key, options.wait === undefined ? { ...settings, wait: 0 } : settings);
    } catch (error) {
      if (isThrown(error, SemaphoreTimeoutError)) return null;
      throw error;
    }
  }

  /**
   * Runs `body` with a permit and gives it back afterwards, or passes it on to a call of this process. There is no
   * re-entry: a nested call for the same name takes a permit of its own.
   *
   * An error of the body reaches the caller unchanged. A result stands if the permit was still trusted when the body
   * ended, unless the store, to which it went back, answers within the lease that the permit had been gone. With
   * `release: 'background'` it does not wait for that answer.
   *
   * @throws PermitLostError when the permit was lost before the body ended: more calls than permits may have run
   * @throws what `acquire` throws; the body did not run
   */
  async withPermit<T>(key: string, options: SemaphoreOptions, body: (permit: Permit) => Promise<T>): Promise<T> {
    if (typeof body !== 'function') throw primitiveOption.refused('body', body, 'the function that runs with a permit');
    const settings = this.settings.settingsOf(options);
    const until = performance.now() + settings.wait;
    let permit = await this.sourceOf(settings.backend).take(nameOf(key), settings);
    while (permit.remaining() === 0) permit = await this.takeAgain(permit, settings, until);
    let result: T;
    try {
      const around = frames.getStore();
      result = await frames.run({ service: this, permit, outer: around && openFrame(around) }, body, permit);
    } catch (error) {
      await permit.finish(undefined).catch(() => {});
      throw error;
    }
    await permit.finish(permit.remaining() > 0 ? undefined : await permit.lostOnceRead());
    return result;
  }

  /** The innermost permit of this async context: that of the surrounding `withPermit` or decorated method. */
  current(): Permit | undefined {
    let frame = openFrame(frames.getStore());
    while (frame && frame.service !== this) frame = frame.outer;
    return frame?.permit;
  }

  /**
   * How many permits are free. Without `permits`, of the number that the last call gave; `null` if there was no call
   * for a while, so that the store does not know the number any more. Those that wait are not counted: a call that
   * finds free permits may still have to wait behind one that wants more of them.
   *
   * Of an object of options that other calls share, it checks all and uses `permits` and `backend`.
   *
   * @throws PrimitiveBackendError when the backend fails
   */
  available(key: string, options: SemaphoreLookup & { readonly permits: number }): Promise<number>;
  available(key: string, options?: SemaphoreLookup): Promise<number | null>;
  async available(key: string, options: SemaphoreLookup = {}): Promise<number | null> {
    const { permits, backend } = semaphoreLookup(options);
    const [name, source] = [nameOf(key), this.sourceOf(backend)];
    const use = await source.use(name);
    const all = permits ?? use.permits;
    return all === undefined ? null : Math.max(0, all - use.taken);
  }

  /** Whether the application has ended, and its permits with it. */
  get closed(): boolean {
    return this.runtime.isStopped;
  }

  /** The permits of this service around the running code. */
  private permitsAround(): ReadonlySet<HeldPermit> {
    const permits = new Set<HeldPermit>();
    for (let frame = openFrame(frames.getStore()); frame; frame = frame.outer) {
      if (frame.service === this) permits.add(frame.permit);
    }
    return permits;
  }

  /** For a caller that gets the permit itself: it is held when this function looks last. */
  private async takeHeld(key: string, settings: SemaphoreSettings): Promise<HeldPermit> {
    const until = performance.now() + settings.wait;
    let permit = await this.sourceOf(settings.backend).take(nameOf(key), settings);
    while (permit.remaining() === 0) permit = await this.takeAgain(permit, settings, until);
    permit.letEnd();
    return permit;
  }

  /**
   * What the caller gets instead of a permit whose lease ended before its body began: others may have kept the event
   * loop since the grant. Takes a permit again until `until` (monotonic, ms).
   */
  private async takeAgain(permit: HeldPermit, settings: SemaphoreSettings, until: number): Promise<HeldPermit> {
    await permit.lostOnceRead();
    if (permit.held) return permit;
    await permit.finish(undefined).catch(() => {});
    const left = Math.ceil(until - performance.now());
    const source = this.sourceOf(settings.backend);
    if (left <= 0) throw source.grantedTooLate(permit.key, settings.ttl);
    return source.take(permit.key, { ...settings, wait: left });
  }

  private sourceOf(backend: string | undefined): PermitSource {
    let source = this.sources.get(backend);
    if (!source) {
      const home = this.runtime.home('Semaphores', backend);
      source = new PermitSource(home, this.runtime.backends.logger, this.draining);
      this.sources.set(backend, source);
    }
    return source;
  }
}

/** @throws PrimitiveKeyError */
function nameOf(key: unknown): string {
  if (typeof key === 'string' && key !== '' && key.isWellFormed()) return key;
  throw new PrimitiveKeyError(`Semaphore key is ${whyNotAName(key)}; give a string of one character or more`);
}
