export const TTL = 600_000;

/** Which state of the database a row was read from. */
export const OLD = 'STALE-ROW';
export const NEW = 'FRESH-ROW';

const SIZE = 512;

/** What loaders return: its JSON has 512 bytes. */
export function rowOf(id, state) {
  const bare = { id, state, padding: '' };
  return { ...bare, padding: 'x'.repeat(SIZE - JSON.stringify(bare).length) };
}
