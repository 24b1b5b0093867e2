import { Body, Controller, Inject, Param, Post, Query } from '@nestjs/common';
import {
  ApiConflictResponse,
  ApiCreatedResponse,
  ApiNotFoundResponse,
  ApiResponse,
  ApiServiceUnavailableResponse,
  ApiTags,
} from '@nestjs/swagger';
import { OrderDto, ReceiptDto, StrategyDto } from './deduction.dto.js';
import { DeductionService } from './deduction.service.js';

@ApiTags('deduction')
@Controller('products/:sku/deduct')
export class DeductionController {
  constructor(@Inject(DeductionService) private readonly deductions: DeductionService) {}

  @Post()
  @ApiCreatedResponse({ type: ReceiptDto, description: 'Accepted, now or when the same order was sent before' })
  @ApiNotFoundResponse({ description: 'No such product' })
  @ApiConflictResponse({ description: 'OUT_OF_STOCK, CONTENDED or STALE_FENCING_TOKEN' })
  @ApiResponse({ status: 423, description: 'The stock stayed locked for as long as the shop waits: Retry-After' })
  @ApiServiceUnavailableResponse({ description: 'The lock service is down: nothing was sold' })
  deduct(@Param('sku') sku: string, @Body() order: OrderDto, @Query() { strategy }: StrategyDto): Promise<ReceiptDto> {
    return this.deductions.deduct(strategy, sku, order);
  }
}
