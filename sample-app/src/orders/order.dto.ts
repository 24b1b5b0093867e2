import { ApiProperty, OmitType } from '@nestjs/swagger';
import { OrderDto, ReceiptDto } from '../deduction/deduction.dto.js';
import { IsSku, IsText } from '../http/is-text.js';

export class PlaceOrderDto extends OrderDto {
  @ApiProperty({ example: 'teapot', maxLength: 100 })
  @IsSku()
  sku!: string;

  @ApiProperty({ example: 'customer-1', maxLength: 100, description: 'Whose order it is' })
  @IsText(100)
  customer!: string;
}

export class PlacedOrderDto extends OmitType(ReceiptDto, ['strategy']) {
  @ApiProperty({ nullable: true, type: String, description: 'The number of the payment; null where nothing is paid' })
  payment!: string | null;
}
