const SEQUENCE = /-(-?\d{10})$/;

/** The number that ZooKeeper has appended to the name of the node; `undefined` if there is none. */
export function sequenceOf(child: string): number | undefined {
  const digits = SEQUENCE.exec(child)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/**
 * The children with a number, in order of arrival. The number has 32 bits and a sign: 2147483647 precedes -2147483648.
 */
export function inOrder(children: readonly string[]): string[] {
  if (children.length <= 1) return children.filter((child) => sequenceOf(child) !== undefined);
  const numbered: { child: string; sequence: number }[] = [];
  for (const child of children) {
    const sequence = sequenceOf(child);
    if (sequence !== undefined) numbered.push({ child, sequence });
  }
  return numbered.toSorted((one, other) => (one.sequence - other.sequence) | 0).map(({ child }) => child);
}

/**
 * Whether the numbers below the parent node come to their end: servers from 3.6 on do not count beyond 2147483647, and
 * would give all further nodes that number. A new parent begins with 0.
 */
export function isWorn(child: string): boolean {
  const sequence = sequenceOf(child) ?? 0;
  return sequence < 0 || sequence >= 2 ** 30;
}
