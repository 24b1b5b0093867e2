/** Draws numbers below `size` by Zipf's law: number n with a weight of 1 / (n + 1) ** exponent. */
export function zipf(size: number, exponent: number): () => number {
  const cumulative = new Float64Array(size);
  let total = 0;
  for (let rank = 0; rank < size; rank++) cumulative[rank] = total += (rank + 1) ** -exponent;
  return () => {
    const drawn = Math.random() * total;
    let low = 0;
    let high = size - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((cumulative[middle] as number) < drawn) low = middle + 1;
      else high = middle;
    }
    return low;
  };
}
