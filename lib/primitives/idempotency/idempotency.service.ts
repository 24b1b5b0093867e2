import { Inject, Injectable, Optional } from '@nestjs/common';
import { ApplicationConfig, ModulesContainer } from '@nestjs/core';
import { UnkeptClasses } from '../../cache/values/unkept-classes.js';
import { PrimitiveKeyError } from '../../errors/primitive-errors.js';
import { hashKey } from '../../keys/hash-key.js';
import { whyNotAName } from '../../keys/key-part.js';
import type { LockBackends } from '../../lock/line/lock-backends.js';
import { LockService } from '../../lock/lock.service.js';
import { primitiveOption } from '../../options/option-checks.js';
import { PrimitiveRuntime } from '../runtime.js';
import { idempotencySettings, type IdempotentRunOptions } from './idempotency-options.js';
import { currentAttempt, type IdempotencyAttempt, IdempotentCall } from './idempotent-call.js';

/** Runs functions once for each key and keeps their results. Provided by `RedisLockModule`; needs Redis or memory. */
@Injectable()
export class IdempotencyService {
  private readonly classes: UnkeptClasses;
  private readonly underWay = new Map<string, number>();
  private readonly repeats = new RepeatEstimate();

  /** @internal */
  constructor(
    @Inject(PrimitiveRuntime) private readonly runtime: PrimitiveRuntime,
    @Inject(LockService) private readonly locks: LockService,
    /** @internal For `idempotencyKey`, whose instances an application may make by itself. */
    @Optional() @Inject(ModulesContainer) readonly modules?: ModulesContainer,
    /** @internal */
    @Optional() @Inject(ApplicationConfig) readonly config?: ApplicationConfig,
  ) {
    this.classes = new UnkeptClasses(runtime.backends.logger);
  }

  /**
   * Runs `body` inside a lock of the key and keeps its result; a repeat gets the kept result, with one request. A call
   * during the run waits for its result, or throws (`onRunning`). If the process that runs `body` dies, the next call
   * runs it again, with a larger `attempt`.
   *
   * An error of `body` reaches the caller unchanged, and the next call runs `body` again, unless `keepErrors` keeps the
   * error.
   *
   * @throws IdempotencyConflictError when the key belongs to a request with another fingerprint
   * @throws IdempotencyRunningError when another call with the key still runs, after `wait`
   * @throws IdempotencyResultError when `body` ran, but its result cannot be kept, or could not be stored
   * @throws LockLostError when the lock was lost while `body` ran, and its result is not kept
   * @throws PrimitiveBackendError or LockBackendError when the backend fails; `body` did not run
   * @throws the reason of `options.signal`
   */
  async run<T>(
    key: string,
    options: IdempotentRunOptions,
    body: (attempt: IdempotencyAttempt) => Promise<T>,
  ): Promise<T> {
    const why = whyNotAName(key);
    if (why) throw new PrimitiveKeyError(`Idempotency key is ${why}; give a string of one character or more`);
    const settings = idempotencySettings(options);
    if (typeof body !== 'function') throw primitiveOption.refused('body', body, 'the function that is to run once');
    const { options: module, logger } = this.runtime.backends;
    const { defaults } = module;
    const { wait = defaults.wait, lease = defaults.ttl, backend = defaults.backend, fingerprint: request } = settings;
    const fingerprint = request === undefined ? '' : digestOf(key, request);
    const home = this.runtime.home('Idempotent methods', backend);
    const site = {
      home,
      locks: this.locks,
      classes: this.classes,
      logger,
      underWay: this.underWay,
      repeats: this.repeats,
    };
    const call = new IdempotentCall(site, key, { ...settings, wait, lease, backend, fingerprint }, body);
    return call.run() as Promise<T>;
  }

  /** The innermost attempt around the running code: of `run`, or of a method with `@Idempotent`. */
  current(): IdempotencyAttempt | undefined {
    return currentAttempt();
  }

  /** @internal */
  get backends(): LockBackends {
    return this.runtime.backends;
  }

  /** Whether the application has ended. */
  get closed(): boolean {
    return this.runtime.isStopped;
  }
}

function digestOf(key: string, request: unknown): string {
  try {
    return hashKey(request);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new PrimitiveKeyError(`The fingerprint of idempotency key "${key}": ${error.message}`, [key]);
  }
}

/** How much the last call counts in an estimate. */
const WEIGHT = 1 / 4;

/** How often the last calls of each key template got a kept result. */
export class RepeatEstimate {
  private readonly shares = new Map<string | undefined, number>();

  note(template: string | undefined, repeated: boolean): void {
    const share = this.shares.get(template) ?? 0;
    this.shares.set(template, share + WEIGHT * ((repeated ? 1 : 0) - share));
  }

  /** Whether most of them did. */
  isLikely(template: string | undefined): boolean {
    return (this.shares.get(template) ?? 0) > 1 / 2;
  }
}
