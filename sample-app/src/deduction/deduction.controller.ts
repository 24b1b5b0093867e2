import { Body, Controller, Inject, Param, Post, Query } from '@nestjs/common';
import {
  ApiBadRequestResponse,
  ApiConflictResponse,
  ApiCreatedResponse,
  ApiNotFoundResponse,
  ApiOperation,
  ApiResponse,
  ApiServiceUnavailableResponse,
  ApiTags,
  ApiUnprocessableEntityResponse,
} from '@nestjs/swagger';
import { ErrorBody } from '../http/error-body.js';
import { SkuParam } from '../products/product.dto.js';
import { OrderDto, ReceiptDto, StrategyDto } from './deduction.dto.js';
import { DeductionService } from './deduction.service.js';

@ApiTags('deduction')
@Controller('products/:sku/deduct')
export class DeductionController {
  constructor(@Inject(DeductionService) private readonly deductions: DeductionService) {}

  @Post()
  @ApiOperation({ summary: 'Takes an order for pieces of a product, by the strategy asked for' })
  @ApiCreatedResponse({ type: ReceiptDto, description: 'Accepted, now or when the same order was sent before' })
  @ApiBadRequestResponse({ type: ErrorBody, description: 'The order breaks a rule, which the message names' })
  @ApiNotFoundResponse({ type: ErrorBody, description: 'No such product' })
  @ApiConflictResponse({ type: ErrorBody, description: 'OUT_OF_STOCK, CONTENDED or STALE_FENCING_TOKEN' })
  @ApiUnprocessableEntityResponse({
    type: ErrorBody,
    description: 'The number belongs to an order with another content',
  })
  @ApiResponse({
    status: 423,
    type: ErrorBody,
    description: 'The stock stayed locked while the shop waited: Retry-After',
  })
  @ApiResponse({ status: 500, type: ErrorBody, description: 'LOCK_LOST: send the same order again' })
  @ApiServiceUnavailableResponse({
    type: ErrorBody,
    description: 'LOCK_BACKEND or DATABASE_UNAVAILABLE: send the same order again',
  })
  deduct(@Param() { sku }: SkuParam, @Body() order: OrderDto, @Query() { strategy }: StrategyDto): Promise<ReceiptDto> {
    return this.deductions.deduct(strategy, sku, order);
  }
}
