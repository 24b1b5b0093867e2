import { streamKindOf } from '../../cache/values/streams.js';
import { typedSerializer } from '../../cache/values/typed-serializer.js';
import type { UnkeptClasses } from '../../cache/values/unkept-classes.js';
import type { IdempotencyRecord, IdempotencyState } from '../../contracts/primitives/idempotency-store.js';
import { IdempotencyResultError } from '../../errors/idempotency-errors.js';
import { errorOf, keptErrorOf } from './kept-errors.js';
import type { IdempotencySettings } from './idempotency-options.js';

/** A result in the form that is kept. */
export interface Result {
  readonly state: Exclude<IdempotencyState, 'running'>;
  readonly payload: string | Buffer;
}

/** How results are written and read. */
type Form = Pick<IdempotencySettings, 'serializer' | 'revive' | 'maxBytes'>;

const errors = typedSerializer();

/** The value of a method in the form that is kept: `unkept`, with the reason, where it has none. */
export function resultOf(key: string, value: unknown, form: Form, classes: UnkeptClasses): Result {
  if (value === undefined) return { state: 'undefined', payload: '' };
  const stream = streamKindOf(value);
  if (stream) return unkept(`it returned ${stream}, which can be read only once; return its content`);
  if (typeof value === 'function') return unkept('it returned a function, which cannot be kept; return data');
  try {
    classes.look(key, value, form.revive);
    return bounded('value', form.serializer.serialize(value), form.maxBytes);
  } catch (error) {
    return unkept(`its result cannot be serialized (${messageOf(error)})`);
  }
}

/** The error of a method in the form that is kept. */
export function errorResultOf(error: unknown, { maxBytes }: Form): Result {
  try {
    return bounded('error', errors.serialize(keptErrorOf(error)), maxBytes);
  } catch (problem) {
    return unkept(`its error cannot be serialized (${messageOf(problem)})`);
  }
}

/**
 * The value that was kept for repeats; `undefined` while there is none.
 *
 * @throws the kept error
 * @throws IdempotencyResultError when the result could not be kept, or cannot be read
 */
export function answerOf(key: string, { state, payload }: IdempotencyRecord, form: Form): Answer | undefined {
  switch (state) {
    case 'running':
      return undefined;
    case 'undefined':
      return { value: undefined };
    case 'value':
      return { value: readable(key, () => revived(form.serializer.deserialize(payload), form)) };
    case 'error':
      throw readable(key, () => errorOf(errors.deserialize(payload) as ReturnType<typeof keptErrorOf>));
    default:
      throw unkeptError(key, payload);
  }
}

/** What a repeat gets. */
export interface Answer {
  readonly value: unknown;
}

export function unkeptError(key: string, why: string | Buffer): IdempotencyResultError {
  return new IdempotencyResultError(key, { why: why.toString(), mayRunAgain: false });
}

function unkept(why: string): Result {
  return { state: 'unkept', payload: why };
}

function bounded(state: 'value' | 'error', payload: string | Buffer, maxBytes: number): Result {
  const size = Buffer.byteLength(payload);
  if (size <= maxBytes) return { state, payload };
  return unkept(`its result has ${size} bytes, more than maxBytes (${maxBytes}); return less, or raise maxBytes`);
}

function revived(stored: unknown, { revive }: Form): unknown {
  return revive ? revive(stored) : stored;
}

function readable<T>(key: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    const why = `its kept result cannot be read (${messageOf(cause)})`;
    throw new IdempotencyResultError(key, { why, mayRunAgain: false, cause });
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
