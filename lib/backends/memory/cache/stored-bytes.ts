import type { StoredData } from '../../../contracts/cache-store.js';

/** Copies the bytes, because the caller may change them. */
export function copyOf(data: StoredData): Buffer {
  return typeof data === 'string' ? Buffer.from(data) : Buffer.from(data);
}

/** Copies what the value begins with, up to and with its first line feed. */
export function headOf(value: Buffer): Buffer {
  const end = value.indexOf('\n');
  return Buffer.from(end === -1 ? value : value.subarray(0, end + 1));
}

export function beginsWith(value: Buffer, beginning: StoredData = ''): boolean {
  const expected = Buffer.from(beginning as string);
  return value.subarray(0, expected.length).equals(expected);
}
