import { Inject, Injectable } from '@nestjs/common';
import { LOCK_TTL, SETTINGS, type Settings } from '../../settings.js';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { NaiveLock } from '../naive-lock.js';
import type { DeductionStrategy } from '../deduction-strategy.js';
import { NoneDeduction } from './none.deduction.js';

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
