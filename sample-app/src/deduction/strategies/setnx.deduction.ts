import { Inject, Injectable } from '@nestjs/common';
import type { OrderDto, ReceiptDto } from '../deduction.dto.js';
import { NaiveLock } from '../naive-lock.js';
import type { DeductionStrategy } from '../deduction-strategy.js';
import { NoneDeduction } from './none.deduction.js';

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
