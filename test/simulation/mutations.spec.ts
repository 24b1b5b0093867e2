import { readFileSync } from 'node:fs';
import { MUTATIONS } from './mutations/index.js';

const LIBRARY = new URL('../../lib/', import.meta.url);

describe('the mutations', () => {
  it('change a text that is once in its file', () => {
    const edits = MUTATIONS.flatMap(({ name, edits: all }) => all.map((edit) => ({ name, ...edit })));
    const gone = edits.filter(({ file, text }) => {
      const source = readFileSync(new URL(file, LIBRARY), 'utf8');
      return source.split(text).length !== 2;
    });
    expect(gone.map(({ name, text }) => `${name}: ${text}`)).toEqual([]);
  });

  it('have a name each', () => {
    expect(new Set(MUTATIONS.map(({ name }) => name)).size).toBe(MUTATIONS.length);
  });
});
