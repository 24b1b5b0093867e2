import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { IsIn, IsInt, IsOptional, Max, Min, ValidateIf } from 'class-validator';
import { IsSku, IsText } from '../http/is-text.js';

/** The product in the path of a request. */
export class SkuParam {
  @ApiProperty({ example: 'teapot' })
  @IsSku()
  sku!: string;
}

export class CreateProductDto {
  @ApiProperty({ example: 'teapot', maxLength: 100 })
  @IsSku()
  sku!: string;

  @ApiPropertyOptional({ example: 'Teapot, blue', maxLength: 200, description: 'The sku unless given' })
  @ValidateIf((product: CreateProductDto) => product.name !== undefined)
  @IsText(200)
  name?: string;

  @ApiProperty({ example: 200, minimum: 0, maximum: 1_000_000 })
  @IsInt()
  @Min(0)
  @Max(1_000_000)
  stock!: number;
}

export class RestockDto {
  @ApiProperty({ example: 10, minimum: 1, maximum: 1_000_000 })
  @IsInt()
  @Min(1)
  @Max(1_000_000)
  quantity!: number;
}

export class LevelDto {
  @ApiProperty({ example: 10, minimum: 0, maximum: 1_000_000, description: 'Pieces' })
  @IsInt()
  @Min(0)
  @Max(1_000_000)
  level!: number;
}

export class ReadDto {
  @ApiPropertyOptional({ enum: ['on', 'off'], default: 'on', description: 'off: asks the database itself' })
  @IsOptional()
  @IsIn(['on', 'off'])
  cache: 'on' | 'off' = 'on';
}

export class ProductDto {
  @ApiProperty()
  sku!: string;

  @ApiProperty()
  name!: string;

  @ApiProperty()
  stock!: number;
}
