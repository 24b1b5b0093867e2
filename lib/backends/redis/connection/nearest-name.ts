/** The known name that is spelt most like the given one; `undefined` when none is close. */
export function nearestName(given: string, known: Iterable<string>): string | undefined {
  const limit = Math.min(Math.max(2, Math.floor(given.length / 3)), given.length - 1);
  let nearest: { name: string; distance: number } | undefined;
  for (const name of known) {
    const distance = editDistance(given.toLowerCase(), name.toLowerCase());
    if (distance <= limit && distance < (nearest?.distance ?? Infinity)) nearest = { name, distance };
  }
  return nearest?.name;
}

/** How many letters have to be inserted, removed or replaced. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (const [line, letter] of from.split('').entries()) {
    const next = [line + 1];
    for (let index = 0; index < to.length; index++) {
      const replaced = (row[index] ?? 0) + (letter === to[index] ? 0 : 1);
      next.push(Math.min(replaced, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
