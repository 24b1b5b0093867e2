import { applyDecorators } from '@nestjs/common';
import { IsString, Matches, MaxLength } from 'class-validator';

/**
 * Accepts text that means the same everywhere: PostgreSQL stores no NUL, and on the way there every half of a surrogate
 * pair becomes the same character.
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

/** Accepts what can name a product in a path, where `.` and `..` are folders. */
export function IsSku(): PropertyDecorator {
  return applyDecorators(IsText(100), Matches(/^(?!\.{1,2}$)/u, { message: '$property must not be . or ..' }));
}
