import { Body, Controller, Inject, Post } from '@nestjs/common';
import {
  ApiBadRequestResponse,
  ApiConflictResponse,
  ApiCreatedResponse,
  ApiNotFoundResponse,
  ApiOperation,
  ApiServiceUnavailableResponse,
  ApiTags,
  ApiTooManyRequestsResponse,
  ApiUnprocessableEntityResponse,
} from '@nestjs/swagger';
import { RateLimitPolicy, type LimitedRequest, type RateLimitPolicyOptions } from 'nest-redis-lock';
import { ErrorBody } from '../http/error-body.js';
import { PRIMITIVE_BACKEND } from '../settings.js';
import { PlacedOrderDto, PlaceOrderDto } from './order.dto.js';
import { OrdersService } from './orders.service.js';

/** How often one customer may order: `limit` times in `per` ms, and as often at once. */
const ORDER_POLICY: RateLimitPolicyOptions = {
  limit: 20,
  per: 10_000,
  name: 'orders',
  key: customerOf,
  backend: PRIMITIVE_BACKEND,
};

@ApiTags('orders')
@Controller('orders')
export class OrdersController {
  constructor(@Inject(OrdersService) private readonly orders: OrdersService) {}

  @Post()
  @RateLimitPolicy(ORDER_POLICY)
  @ApiOperation({
    summary: 'Takes the pieces of an order out of the stock, and has it paid, once for each order number',
  })
  @ApiCreatedResponse({ type: PlacedOrderDto, description: 'Placed, now or when the same order was sent before' })
  @ApiBadRequestResponse({ type: ErrorBody, description: 'The order breaks a rule, which the message names' })
  @ApiNotFoundResponse({ type: ErrorBody, description: 'No such product' })
  @ApiConflictResponse({ type: ErrorBody, description: 'OUT_OF_STOCK, or the same order is still under way' })
  @ApiUnprocessableEntityResponse({ type: ErrorBody, description: 'The number belongs to another order' })
  @ApiTooManyRequestsResponse({ type: ErrorBody, description: 'The customer orders too often: Retry-After' })
  @ApiServiceUnavailableResponse({
    type: ErrorBody,
    description: 'PAYMENT_UNAVAILABLE, LOCK_BACKEND or DATABASE_UNAVAILABLE: send the same order again',
  })
  place(@Body() order: PlaceOrderDto): Promise<PlacedOrderDto> {
    return this.orders.place(order);
  }
}

/** Where customers have accounts, authentication names them. A request without a customer counts by its address. */
function customerOf(request: LimitedRequest): string | undefined {
  const { body } = request as { readonly body?: { readonly customer?: unknown } };
  return typeof body?.customer === 'string' ? body.customer : undefined;
}
