import { NestFactory } from '@nestjs/core';
import { LockService, RedisLockModule, type LockInfo } from 'nest-redis-lock';
import { openLockStore } from '../lock-stores.js';
import type { LockBackendName } from '../shop-facts.js';
import { reasonOf } from '../words.js';
import type { Grant, LockState } from './live-state.js';

const MOST_GRANTS = 8;

/** Looks at the lock of the product on sale as any other application could: with `LockService.inspect`. */
export class LockWatch implements AsyncDisposable {
  private grants: Grant[] = [];
  /** Labels by the part of the owner that names its instance: a Redis that was restarted has forgotten them. */
  private readonly labels = new Map<string, string>();

  private constructor(
    private readonly locks: LockService,
    private readonly close: () => Promise<void>,
    /** The number of the process of the shop that has this pid. */
    private readonly numberOf: (pid: number) => number | undefined,
  ) {}

  /** `environment`: the variables of the processes whose locks it looks at. */
  static async open(
    environment: Readonly<Record<string, string>>,
    numberOf: (pid: number) => number | undefined,
  ): Promise<LockWatch> {
    const { REDIS_URL = '', LOCK_BACKEND_URL = '', LOCK_PREFIX = '' } = environment;
    const name = environment['LOCK_BACKEND'] as LockBackendName;
    const backend = await openLockStore(name, name === 'redis' ? REDIS_URL : LOCK_BACKEND_URL);
    const module = RedisLockModule.forRoot({ backend, cache: false, prefix: LOCK_PREFIX, label: 'live page' });
    const application = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
    return new LockWatch(application.get(LockService), () => application.close(), numberOf);
  }

  async look(key: string): Promise<LockState> {
    try {
      return this.stateOf((await this.locks.inspect(key)) ?? undefined);
    } catch (error) {
      return { ...this.stateOf(), unknown: reasonOf(error) };
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private stateOf(info?: LockInfo): LockState {
    if (!info) return { holder: null, token: null, waiting: 0, ttl: 0, grants: this.grants };
    const { fencingToken: token, waiting, ttl } = info;
    const holder = this.holderOf(info);
    if (token !== null && token !== this.grants[0]?.token) {
      this.grants = [{ token, holder }, ...this.grants].slice(0, MOST_GRANTS);
    }
    return { holder, token, waiting, ttl, grants: this.grants };
  }

  private holderOf({ owner, label }: LockInfo): number | string {
    const instance = owner.slice(0, owner.lastIndexOf(':'));
    if (label !== undefined) this.labels.set(instance, label);
    const known = this.labels.get(instance) ?? owner;
    return this.numberOf(Number(known.slice(known.lastIndexOf(':') + 1))) ?? known;
  }
}
