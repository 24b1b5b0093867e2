/** Messages of etcd's JSON gateway: keys and values in base64, 64-bit numbers as text, what is 0 or false left out. */
export interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly create_revision: string;
  readonly mod_revision: string;
  readonly lease?: string;
}

export interface Header {
  readonly revision: string;
}

export interface RangeAnswer {
  readonly kvs?: readonly KeyValue[];
  readonly count?: string;
}

export interface TxnAnswer {
  readonly succeeded?: boolean;
  readonly responses?: readonly { readonly response_range?: RangeAnswer; readonly response_txn?: TxnAnswer }[];
}

export type Compare = {
  readonly key: string;
  readonly range_end?: string;
  readonly result: 'EQUAL';
} & (
  | { readonly target: 'CREATE'; readonly create_revision: string }
  | { readonly target: 'MOD'; readonly mod_revision: string }
  | { readonly target: 'VALUE'; readonly value: string }
);

/** One step of a transaction. */
export type Operation =
  | { readonly request_put: object }
  | { readonly request_range: object }
  | { readonly request_delete_range: object }
  | { readonly request_txn: Txn };

/** Carries out `success` if all of `compare` hold, else `failure`: in one step. */
export interface Txn {
  readonly compare: readonly Compare[];
  readonly success: readonly Operation[];
  readonly failure: readonly Operation[];
}

export function encode(text: string): string {
  return Buffer.from(text).toString('base64');
}

export function decode(base64: string | undefined): string {
  return Buffer.from(base64 ?? '', 'base64').toString();
}

export function put(key: string, value: string, lease: string): Operation {
  return { request_put: { key: encode(key), value: encode(value), lease } };
}

/** Writes a key without a lease. */
export function putForGood(key: string, value: string): Operation {
  return { request_put: { key: encode(key), value: encode(value) } };
}

/** Gives the key a new revision, and leaves its value and its lease. */
export function touch(key: string): Operation {
  return { request_put: { key: encode(key), ignore_value: true, ignore_lease: true } };
}

export function remove(key: string): Operation {
  return { request_delete_range: { key: encode(key) } };
}

export function get(key: string): Operation {
  return { request_range: { key: encode(key) } };
}

/** The oldest keys with the prefix, `limit` at most, and how many there are. */
export function oldest(prefix: string, limit = 1): Operation {
  const range = { key: encode(prefix), range_end: endOf(prefix) };
  return { request_range: { ...range, sort_order: 'ASCEND', sort_target: 'CREATE', limit: String(limit) } };
}

/** How many keys have the prefix. */
export function count(prefix: string): Operation {
  return { request_range: { key: encode(prefix), range_end: endOf(prefix), count_only: true } };
}

export function isAbsent(key: string): Compare {
  return isSince(key, '0');
}

/** The key exists since the revision. */
export function isSince(key: string, revision: string): Compare {
  return { target: 'CREATE', result: 'EQUAL', key: encode(key), create_revision: revision };
}

/** No key has the prefix. */
export function hasNone(prefix: string): Compare {
  return { target: 'CREATE', result: 'EQUAL', key: encode(prefix), range_end: endOf(prefix), create_revision: '0' };
}

export function hasValue(key: string, value: string): Compare {
  return { target: 'VALUE', result: 'EQUAL', key: encode(key), value: encode(value) };
}

/** There are keys with the prefix, and all of them have the value. */
export function haveOnly(prefix: string, value: string): Compare {
  const range = { key: encode(prefix), range_end: endOf(prefix) };
  return { target: 'VALUE', result: 'EQUAL', ...range, value: encode(value) };
}

/** The key was last written at the revision. */
export function isUnchanged(key: string, revision: string): Compare {
  return { target: 'MOD', result: 'EQUAL', key: encode(key), mod_revision: revision };
}

/** The end of the range of all keys with the prefix, which ends with an ASCII character. */
function endOf(prefix: string): string {
  const bytes = Buffer.from(prefix);
  bytes[bytes.length - 1] = (bytes.at(-1) as number) + 1;
  return bytes.toString('base64');
}
