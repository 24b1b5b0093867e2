import { createHash } from 'node:crypto';
import { canonicalText } from './canonical-text.js';

/**
 * Makes a key part of a whole object, such as a DTO with a filter: 64 hexadecimal digits (SHA-256), the same for equal
 * data on every machine, whatever the order of its properties. For key functions (`(filter: Filter) => 'list:' +
 * hashKey(filter)`); templates write `<#0>` and `<#0.filter>` instead.
 *
 * Data is what JSON can express, and `Date`, `Map`, `Set`, `bigint` and bytes. `1`, `'1'` and `1n` differ, and so do a
 * `Date` and its text. An instance of a class counts as its own enumerable properties, or as the result of its
 * `toJSON`. A property that is `undefined` counts as absent; `null` does not.
 *
 * @throws TypeError with the path, for `undefined`, functions, symbols, `NaN`, `Infinity`, cycles, and objects whose
 * content is not in their properties
 */
export function hashKey(value: unknown): string {
  return createHash('sha256').update(canonicalText(value)).digest('hex');
}
