import { Body, Controller, Get, HttpCode, Inject, Param, Post, Query } from '@nestjs/common';
import {
  ApiBadRequestResponse,
  ApiConflictResponse,
  ApiCreatedResponse,
  ApiNotFoundResponse,
  ApiOkResponse,
  ApiOperation,
  ApiResponse,
  ApiServiceUnavailableResponse,
  ApiTags,
} from '@nestjs/swagger';
import { ErrorBody } from '../http/error-body.js';
import { CreateProductDto, ProductDto, ReadDto, RestockDto, SkuParam } from './product.dto.js';
import { ProductsService } from './products.service.js';

@ApiTags('products')
@ApiBadRequestResponse({ type: ErrorBody, description: 'The request breaks a rule, which the message names' })
@ApiServiceUnavailableResponse({ type: ErrorBody, description: 'DATABASE_UNAVAILABLE, LOCK_BACKEND or CACHE_BACKEND' })
@Controller('products')
export class ProductsController {
  constructor(@Inject(ProductsService) private readonly products: ProductsService) {}

  @Post()
  @ApiOperation({ summary: 'Puts a product on sale' })
  @ApiCreatedResponse({ type: ProductDto })
  @ApiConflictResponse({ type: ErrorBody, description: 'The product exists' })
  create(@Body() product: CreateProductDto): Promise<ProductDto> {
    return this.products.create(product);
  }

  @Get(':sku')
  @ApiOperation({ summary: 'Shows a product, from the cache unless told otherwise' })
  @ApiOkResponse({ type: ProductDto })
  @ApiNotFoundResponse({ type: ErrorBody, description: 'No such product' })
  find(@Param() { sku }: SkuParam, @Query() { cache }: ReadDto): Promise<ProductDto> {
    return this.products.find(sku, cache === 'on');
  }

  @Post(':sku/restock')
  @HttpCode(200)
  @ApiOperation({ summary: 'Adds pieces to the stock, under the lock of the deductions' })
  @ApiOkResponse({ type: ProductDto })
  @ApiNotFoundResponse({ type: ErrorBody, description: 'No such product' })
  @ApiResponse({ status: 423, type: ErrorBody, description: 'The stock stayed locked while the shop waited' })
  restock(@Param() { sku }: SkuParam, @Body() { quantity }: RestockDto): Promise<ProductDto> {
    return this.products.restock(sku, quantity);
  }
}
