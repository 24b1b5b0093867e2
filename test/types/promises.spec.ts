import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pages, REPOSITORY, sentencesOf } from './pages.js';

/**
 * The words of a sentence that promises. Each such sentence stands in docs/promises.json, which the site also reads:
 * among the `promises`, with the test that fails where it is broken, or among the `others`, which promise nothing.
 */
const PROMISING =
  /\b(never|always|exactly one|exactly once|at most|at least|at the latest|guarantees?|nobody|no two)\b/i;

interface Ledger {
  /** For each page, parts of sentences, each with `path of the spec: name of the test`. */
  readonly promises: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly others: Readonly<Record<string, readonly string[]>>;
}
const { promises, others } = JSON.parse(readFileSync(join(REPOSITORY, 'docs/promises.json'), 'utf8')) as Ledger;
const known = (page: string) => [...Object.keys(promises[page] ?? {}), ...(others[page] ?? [])];
const forUsers = pages().filter((page) => /^(README\.md$|docs\/)/.test(page));
const texts = new Map(forUsers.map((page) => [page, sentencesOf(page).map(({ text }) => text)]));

it('each sentence that promises has its test, or is known to promise nothing', () => {
  const unknown = [...texts].flatMap(([page, sentences]) => {
    const parts = known(page);
    const promising = sentences.filter((sentence) => PROMISING.test(sentence));
    return promising.filter((text) => !parts.some((part) => text.includes(part))).map((text) => `${page}: ${text}`);
  });
  expect(unknown).toEqual([]);
});

it('each entry is a part of a sentence of its page', () => {
  const stale = [...new Set([...Object.keys(promises), ...Object.keys(others)])].flatMap((page) => {
    const sentences = texts.get(page) ?? [];
    return known(page)
      .filter((part) => !sentences.some((text) => text.includes(part)))
      .map((part) => `${page}: ${part}`);
  });
  expect(stale).toEqual([]);
});

it('each test that is named exists', () => {
  const named = Object.values(promises).flatMap((page) => Object.values(page));
  expect(named.length).toBeGreaterThan(90);
  const missing = [...new Set(named)].filter((name) => {
    const [, spec = '', test = ''] = /^([^:]+): (.+)$/.exec(name) ?? [];
    return !existsSync(join(REPOSITORY, spec)) || !readFileSync(join(REPOSITORY, spec), 'utf8').includes(test);
  });
  expect(missing).toEqual([]);
});
