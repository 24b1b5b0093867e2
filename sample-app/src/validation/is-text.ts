import { applyDecorators } from '@nestjs/common';
import { IsString, Matches, MaxLength } from 'class-validator';

/**
 * Text that means the same everywhere: PostgreSQL keeps no NUL, and halves of surrogate pairs all become one character
 * on their way there.
 */
export function IsText(longest: number): PropertyDecorator {
  return applyDecorators(
    IsString(),
    MaxLength(longest),
    Matches(/\S/u, { message: '$property must not be blank' }),
    Matches(/^[^\p{Cc}\p{Cs}]*$/u, {
      message: '$property must not contain control characters or half surrogate pairs',
    }),
  );
}

/** What names a product in an address, where `.` and `..` are folders. */
export function IsSku(): PropertyDecorator {
  return applyDecorators(IsText(100), Matches(/^(?!\.{1,2}$)/u, { message: '$property must not be . or ..' }));
}
