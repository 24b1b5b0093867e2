import { ApiProperty } from '@nestjs/swagger';
import { Type } from 'class-transformer';
import { ArrayMaxSize, IsArray, IsInt, Max, Min, ValidateNested } from 'class-validator';
import { IsSku } from '../http/is-text.js';

export class PriceDto {
  @ApiProperty({ example: 'teapot', maxLength: 100 })
  @IsSku()
  sku!: string;

  @ApiProperty({ example: 1_990, minimum: 0, maximum: 1_000_000_000, description: 'In cents' })
  @IsInt()
  @Min(0)
  @Max(1_000_000_000)
  price!: number;
}

export class ImportDto {
  @ApiProperty({ example: 1, minimum: 1, maximum: 1_000_000_000, description: 'Of the whole catalogue' })
  @IsInt()
  @Min(1)
  @Max(1_000_000_000)
  version!: number;

  @ApiProperty({ type: [PriceDto], maxItems: 10_000 })
  @IsArray()
  @ArrayMaxSize(10_000)
  @ValidateNested({ each: true })
  @Type(() => PriceDto)
  prices!: PriceDto[];
}

export class CatalogueEntryDto extends PriceDto {
  @ApiProperty({ description: 'Of the import that wrote the price' })
  version!: number;
}
