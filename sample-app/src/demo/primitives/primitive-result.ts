import type { Primitive } from '../../primitives.js';

/** What the demo found out about one primitive. */
export interface PrimitiveResult {
  readonly primitive: Primitive;
  /** What the demo did. */
  readonly tried: string;
  /** What its clients saw. */
  readonly happened: string;
  /** What the database, or the payment provider of the demo, counted. */
  readonly evidence: string;
  /** How the primitive broke its promise; empty where it did not. */
  readonly failures: readonly string[];
}

/** The messages whose conditions do not hold. */
export function failuresAmong(...checks: readonly (readonly [holds: boolean, otherwise: string])[]): string[] {
  return checks.filter(([holds]) => !holds).map(([, otherwise]) => otherwise);
}
