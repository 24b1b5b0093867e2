import { ApiProperty } from '@nestjs/swagger';
import { IsInt, Max, Min } from 'class-validator';

export class LevelDto {
  @ApiProperty({ example: 10, minimum: 0, maximum: 1_000_000, description: 'Pieces' })
  @IsInt()
  @Min(0)
  @Max(1_000_000)
  level!: number;
}
