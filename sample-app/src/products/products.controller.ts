import { Body, Controller, Get, HttpCode, Inject, Param, Post, Query } from '@nestjs/common';
import { ApiConflictResponse, ApiCreatedResponse, ApiNotFoundResponse, ApiOkResponse, ApiTags } from '@nestjs/swagger';
import { CreateProductDto, ProductDto, ReadDto, RestockDto } from './product.dto.js';
import { ProductsService } from './products.service.js';

@ApiTags('products')
@Controller('products')
export class ProductsController {
  constructor(@Inject(ProductsService) private readonly products: ProductsService) {}

  @Post()
  @ApiCreatedResponse({ type: ProductDto })
  @ApiConflictResponse({ description: 'The product exists' })
  create(@Body() product: CreateProductDto): Promise<ProductDto> {
    return this.products.create(product);
  }

  @Get(':sku')
  @ApiOkResponse({ type: ProductDto })
  @ApiNotFoundResponse()
  find(@Param('sku') sku: string, @Query() { cache }: ReadDto): Promise<ProductDto> {
    return this.products.find(sku, cache === 'on');
  }

  @Post(':sku/restock')
  @HttpCode(200)
  @ApiOkResponse({ type: ProductDto })
  @ApiNotFoundResponse()
  restock(@Param('sku') sku: string, @Body() { quantity }: RestockDto): Promise<ProductDto> {
    return this.products.restock(sku, quantity);
  }
}
