/** Jain's index: 1 when all were served equally often, 1 / n when one of n was served alone. */
export function jainIndex(served) {
  const sum = served.reduce((total, count) => total + count, 0);
  const squares = served.reduce((total, count) => total + count * count, 0);
  return squares === 0 ? 0 : (sum * sum) / (served.length * squares);
}
