import { instance, type Check } from '../../../options/checks.js';

/** A name that needs no quotes, and leaves room for what statements append. */
const SCHEMA = /^[a-z_][a-z0-9_]{0,39}$/;

export const schemaName: Check<string> = instance(
  (value): value is string => typeof value === 'string' && SCHEMA.test(value),
  'a name of at most 40 lower-case letters, digits and underscores',
);
