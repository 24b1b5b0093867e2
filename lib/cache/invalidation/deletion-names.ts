/** The deletion of every value whose key begins with a prefix. */
export interface PrefixDeletion {
  readonly prefix: string;
  /** How many keys to look at in one step. */
  readonly batch: number;
}

/** What begins the names of all but the commonest deletions, those of a key. */
const MARK = '\0';

/**
 * The name under which the store keeps the scheduled deletion of a key: the key itself, unless it begins with a mark.
 */
export function nameOfKey(key: string): string {
  return key.startsWith(MARK) ? `${MARK}k${key}` : key;
}

export function nameOfPrefix({ prefix, batch }: PrefixDeletion): string {
  return `${MARK}p${batch}:${prefix}`;
}

/** What the name stands for: a key, or a deletion by prefix. */
export function namedBy(name: string): string | PrefixDeletion {
  if (!name.startsWith(MARK)) return name;
  const rest = name.slice(2);
  if (name[1] === 'k') return rest;
  const end = rest.indexOf(':');
  return { batch: Number(rest.slice(0, end)), prefix: rest.slice(end + 1) };
}
