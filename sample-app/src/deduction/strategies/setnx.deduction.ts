import { setTimeout as sleep } from 'node:timers/promises';
import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { Redis } from 'ioredis';
import { LOCK_TTL, SETTINGS, type Settings } from '../../settings.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { ContendedException } from '../deduction.exceptions.js';
import type { DeductionStrategy } from '../strategy.js';
import { NoneDeduction } from './none.deduction.js';

/** Milliseconds: as long as the locks of the module wait, between two tries, and for one answer of Redis. */
const WAIT = 5_000;
const PAUSE = 20;
const COMMAND_TIMEOUT = 1_000;

/**
 * A lock as it is often written on Redis, with known faults: nothing renews it, a holder does not learn of its loss,
 * and a release deletes the key, whichever process set it.
 */
@Injectable()
export class NaiveLock implements OnApplicationShutdown {
  private readonly redis: Redis;
  private readonly prefix: string;

  constructor(@Inject(SETTINGS) { redisUrl, lockPrefix = 'shop' }: Settings) {
    this.redis = new Redis(redisUrl, { lazyConnect: true, commandTimeout: COMMAND_TIMEOUT });
    this.redis.on('error', () => {});
    this.prefix = `${lockPrefix}:naive:`;
  }

  /** `expiry`: in milliseconds, if the key has one. */
  async run<T>(sku: string, expiry: number | undefined, body: () => Promise<T>): Promise<T> {
    const key = this.prefix + sku;
    const until = performance.now() + WAIT;
    while (!(await this.set(key, expiry))) {
      if (performance.now() > until) throw new ContendedException(sku);
      await sleep(PAUSE);
    }
    try {
      return await body();
    } finally {
      await this.redis.del(key);
    }
  }

  onApplicationShutdown(): void {
    this.redis.disconnect();
  }

  private async set(key: string, expiry: number | undefined): Promise<boolean> {
    if (expiry === undefined) return (await this.redis.setnx(key, '1')) === 1;
    return (await this.redis.set(key, '1', 'PX', expiry, 'NX')) === 'OK';
  }
}

/** Works between `SETNX` and `DEL`. A process that dies between them leaves the product locked for ever. */
@Injectable()
export class SetnxDeduction implements DeductionStrategy {
  constructor(
    @Inject(NaiveLock) private readonly lock: NaiveLock,
    @Inject(NoneDeduction) private readonly unprotected: NoneDeduction,
  ) {}

  deduct(sku: string, order: OrderDto): Promise<ReceiptDto> {
    return this.lock.run(sku, undefined, () => this.unprotected.deduct(sku, order, 'setnx'));
  }
}

/**
 * Works between `SET NX PX` and `DEL`. A process that stands still beyond the expiry goes on beside the next holder,
 * and its `DEL` frees the lock of that holder.
 */
@Injectable()
export class SetnxExpiryDeduction implements DeductionStrategy {
  private readonly expiry: number;

  constructor(
    @Inject(SETTINGS) { lockTtl = LOCK_TTL }: Settings,
    @Inject(NaiveLock) private readonly lock: NaiveLock,
    @Inject(NoneDeduction) private readonly unprotected: NoneDeduction,
  ) {
    this.expiry = lockTtl;
  }

  deduct(sku: string, order: OrderDto): Promise<ReceiptDto> {
    return this.lock.run(sku, this.expiry, () => this.unprotected.deduct(sku, order, 'setnx-expiry'));
  }
}
