import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { IsIn, IsInt, IsNotEmpty, IsOptional, IsString, Max, MaxLength, Min } from 'class-validator';

export class CreateProductDto {
  @ApiProperty({ example: 'teapot' })
  @IsString()
  @IsNotEmpty()
  @MaxLength(100)
  sku!: string;

  @ApiPropertyOptional({ example: 'Teapot, blue' })
  @IsOptional()
  @IsString()
  name?: string;

  @ApiProperty({ example: 200, minimum: 0 })
  @IsInt()
  @Min(0)
  @Max(1_000_000)
  stock!: number;
}

export class RestockDto {
  @ApiProperty({ example: 10, minimum: 1 })
  @IsInt()
  @Min(1)
  @Max(1_000_000)
  quantity!: number;
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
