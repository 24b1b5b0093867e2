import { createHash } from 'node:crypto';
import { canonicalText } from './canonical-text.js';

/**
 * A key part of a whole object, such as a DTO with a filter: the same 64 hexadecimal digits (SHA-256) for the same
 * data, on every machine, in whichever order its properties stand. For key functions (`(filter: Filter) => 'list:' +
 * hashKey(filter)`); templates have `<#0>` and `<#0.filter>` for it.
 *
 * Data is what JSON has, and `Date`, `Map`, `Set`, `bigint` and bytes. `1`, `'1'` and `1n` differ, and so do a `Date`
 * and its text. An instance of a class counts as its own enumerable properties, or as what its `toJSON` answers. A
 * property that is `undefined` counts as absent; `null` does not.
 *
 * @throws TypeError for `undefined`, functions, symbols, `NaN`, `Infinity`, cycles, and objects that hide what they
 * hold, with the path
 */
export function hashKey(value: unknown): string {
  return createHash('sha256').update(canonicalText(value)).digest('hex');
}
