import { PrimitiveKeyError } from '../errors/primitive-errors.js';
import { whyNotAName } from '../keys/key-part.js';

/**
 * Checks a name that no arguments are part of. `what` is named in errors, as in "scheduled job"; `byHand` is the call
 * that takes a name of the caller's making.
 *
 * @throws PrimitiveKeyError
 */
export function requireFixedName(name: string, what: string, byHand: string): void {
  const why = whyNotAName(name);
  if (why) throw new PrimitiveKeyError(`The name of the ${what} is ${why}; give a string of one character or more`);
  if (!/<#?\d[^>]*>/.test(name)) return;
  throw new PrimitiveKeyError(
    `The name of the ${what} is "${name}", but it is fixed: nothing replaces a placeholder in it. For a name of the ` +
      `arguments, call ${byHand}`,
    [name],
  );
}
