import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { IsIn, IsInt, IsOptional, Max, Min } from 'class-validator';
import { IsText } from '../http/is-text.js';
import { ALL_STRATEGIES, type Strategy } from './strategy.js';

export class OrderDto {
  @ApiProperty({ example: 1, minimum: 1, maximum: 1_000_000 })
  @IsInt()
  @Min(1)
  @Max(1_000_000)
  quantity!: number;

  @ApiProperty({
    example: 'order-1',
    maxLength: 100,
    description: 'Unique: the same order sent twice is accepted once',
  })
  @IsText(100)
  orderId!: string;
}

export class StrategyDto {
  @ApiPropertyOptional({ enum: ALL_STRATEGIES, default: 'lock' })
  @IsOptional()
  @IsIn(ALL_STRATEGIES)
  strategy: Strategy = 'lock';
}

export class ReceiptDto {
  @ApiProperty()
  orderId!: string;

  @ApiProperty()
  sku!: string;

  @ApiProperty()
  quantity!: number;

  @ApiProperty({ enum: ALL_STRATEGIES })
  strategy!: Strategy;

  @ApiProperty({ description: 'What was left after this order' })
  stock!: number;
}
