/** Calls `one` for each number below `total`, a given number of them at a time. */
export async function inParallel(callers, total, one) {
  let next = 0;
  const call = async () => {
    while (next < total) await one(next++);
  };
  await Promise.all(Array.from({ length: Math.min(callers, total) }, call));
}
