import { Body, Controller, Inject, Param, Put } from '@nestjs/common';
import { ApiBadRequestResponse, ApiNotFoundResponse, ApiOkResponse, ApiOperation, ApiTags } from '@nestjs/swagger';
import { ErrorBody } from '../http/error-body.js';
import { LevelDto, SkuParam } from '../products/product.dto.js';
import { RestockService } from './restock.service.js';

@ApiTags('products')
@Controller('products/:sku/level')
export class RestockController {
  constructor(@Inject(RestockService) private readonly restocks: RestockService) {}

  @Put()
  @ApiOperation({ summary: 'Keeps the stock of a product at a level: the leader of the processes restocks it' })
  @ApiOkResponse({ type: LevelDto })
  @ApiBadRequestResponse({ type: ErrorBody, description: 'The level breaks a rule, which the message names' })
  @ApiNotFoundResponse({ type: ErrorBody, description: 'No such product' })
  keep(@Param() { sku }: SkuParam, @Body() level: LevelDto): Promise<LevelDto> {
    return this.restocks.keep(sku, level);
  }
}
