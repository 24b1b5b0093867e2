import type { PrimitiveResult } from './primitive-result.js';

export const PRIMITIVES_HEAD = ['primitive', 'tried', 'happened', 'evidence', 'promise'];

/** The row of a table below `PRIMITIVES_HEAD`. */
export function primitiveCells({ primitive, tried, happened, evidence, failures }: PrimitiveResult): string[] {
  return [primitive, tried, happened, evidence, failures.length === 0 ? 'kept' : 'broken'];
}

export function primitivesFailures(results: readonly PrimitiveResult[]): string[] {
  return results
    .filter(({ failures }) => failures.length > 0)
    .map(({ primitive, failures }) => `${primitive}: ${failures.join(', ')}`);
}

/** Sums up what the primitives did, if they were tried. */
export function primitivesVerdict(results: readonly PrimitiveResult[]): string | undefined {
  if (results.length === 0) return undefined;
  const names = [...new Set(results.map(({ primitive }) => primitive))];
  return `${names.join(', ')} kept what they promise`;
}
