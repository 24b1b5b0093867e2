import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { lockBackendCases } from 'nest-redis-lock/testing';
import { memory } from 'nest-redis-lock';
import { REPOSITORY } from '../types/pages.js';
import { GUARANTEES } from './wrong-backends.js';
import { WRONG_CACHE_STORES } from './wrong-cache-stores.js';
import { WRONG_IN_MEMORY } from './wrong-in-memory.js';
import { WRONG_ON_REDIS } from './wrong-on-redis.js';

/** What no store can break: the library keeps it above all of them. */
const OF_THE_LIBRARY = ['standstill', 'context', 'run'] as const;

const PAGE = 'docs/guide/backend-promises.md';
const read = (file: string) => readFileSync(join(REPOSITORY, file), 'utf8');

/** The cells of the rows of each table of the page. */
const tables = read(PAGE)
  .split(/^\| Promise.*\n\| -.*\n/m)
  .slice(1)
  .map((text) => text.split('\n').filter((line) => line.startsWith('|')))
  .map((rows) => rows.map((row) => row.split('|').slice(1, -1)))
  .map((rows) => rows.map((cells) => cells.map((cell) => cell.trim())));
const [promises = [], broken = [], kept = []] = tables;

it('names every promise, and for each a store that breaks it', () => {
  const [named, shown] = [promises, [...broken, ...kept]].map((rows) => new Set(rows.map(([promise]) => promise)));
  expect([...named!]).toEqual([...GUARANTEES, 'fill', 'outdated', ...OF_THE_LIBRARY]);
  expect(shown).toEqual(named);
  const byBackends = new Set(broken.map(([promise]) => promise));
  expect([...GUARANTEES].filter((promise) => !byBackends.has(promise))).toEqual([]);
});

it('shows every case that a wrong backend fails, and the cases exist', () => {
  const wrong = [...WRONG_IN_MEMORY, ...WRONG_ON_REDIS, ...WRONG_CACHE_STORES];
  const rows = wrong.map(({ guarantee, fails, what }) => [guarantee, fails, what].join(' | '));
  expect(broken.map((cells) => cells.join(' | ')).toSorted()).toEqual(rows.toSorted());
  const cases = new Set(lockBackendCases({ open: () => memory() }).map(({ name }) => name));
  const missing = [...WRONG_IN_MEMORY, ...WRONG_ON_REDIS].filter(({ fails }) => !cases.has(fails));
  expect(missing.map(({ fails }) => fails)).toEqual([]);
});

it('names tests of stores that break a promise', () => {
  const missing = kept.filter(([, link = '']) => {
    const [, test = '', spec = ''] = /^\[(.+)\]\(\.\.\/\.\.\/(.+)\)$/.exec(link) ?? [];
    const text = spec && read(spec);
    return !text.includes(`'${test}'`) || !/\/(lying|open)-backend\.js'/.test(text);
  });
  expect(missing).toEqual([]);
});
