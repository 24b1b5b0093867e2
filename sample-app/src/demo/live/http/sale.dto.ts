import { applyDecorators } from '@nestjs/common';
import { IsIn, IsInt, Max, Min } from 'class-validator';
import { ALL_STRATEGIES, type Strategy } from '../../../deduction/strategy.js';
import { LOCK_BACKENDS, type LockBackendName } from '../../../lock-backend.js';
import { SALE_LIMITS } from '../../sale-limits.js';
import type { SaleSettings } from '../live-state.js';

/** A sale that the page asks for. The numbers have the limits of the command line. */
export class SaleDto implements SaleSettings {
  @IsIn(ALL_STRATEGIES)
  strategy!: Strategy;

  @IsIn(LOCK_BACKENDS)
  backend!: LockBackendName;

  @WithinLimits('instances')
  instances!: number;

  @WithinLimits('stock')
  stock!: number;

  @WithinLimits('orders')
  orders!: number;

  @WithinLimits('concurrency')
  concurrency!: number;
}

function WithinLimits(name: keyof typeof SALE_LIMITS): PropertyDecorator {
  const [least, most] = SALE_LIMITS[name];
  const rule = { message: `${name}: give a whole number from ${least} to ${most}` };
  return applyDecorators(IsInt(rule), Min(least, rule), Max(most, rule));
}
