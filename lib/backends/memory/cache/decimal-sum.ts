import { refusal } from './refusal.js';

/** Adds as INCRBY of Redis does: 64-bit integers in plain decimals. @throws Error as Redis answers it */
export function sumOf(key: string, value: Buffer | undefined, by: number): bigint {
  const text = value?.toString() ?? '0';
  if (!/^(0|-?[1-9]\d*)$/.test(text) || !fits(BigInt(text))) {
    const shown = JSON.stringify(text.slice(0, 50));
    throw refusal(
      `Cannot increment "${key}": its value ${shown} is not an integer of 64 bits; delete it, or set a number`,
    );
  }
  const sum = BigInt(text) + BigInt(by);
  if (!fits(sum)) throw refusal(`Cannot increment "${key}" by ${by}: ${text} + ${by} would overflow 64 bits`);
  return sum;
}

function fits(number: bigint): boolean {
  return BigInt.asIntN(64, number) === number;
}
