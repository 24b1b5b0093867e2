import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pages, REPOSITORY, sentencesOf } from './pages.js';

const MOST_COLUMNS = 120;
const COMMENT = /^\s*(\*|\/\*|\/\/|--) ?/;

/** Where the text says less plainly what `who does what, for how long` would say. */
const TRANSLATED = /\b(so many|so long(?! (as|that))|whoever|(is|are|was) told|left alone|bears|hears|has to say)\b/i;

/** A reader keeps so many words in mind. Code counts as one. */
const MOST_WORDS = 22;

/** What no English writer would say, and what a reader reads twice, each with a better way. */
const REFUSED: readonly (readonly [RegExp, string])[] = [
  [/\bwhich there (is|are) none\b/i, 'say who lacks what'],
  [/\b(of|by) (yours|ours|theirs)\b/i, 'your client, the library’s connection'],
  [/\bthat which\b/i, 'what'],
  [/\bin the eyes of\b/i, 'name the actor and the verb'],
  [/\b(hence|thereof|therein|whereby|lest)\b/i, 'so, of it, in it, by which'],
  [/\bis to be \w+(ed|en)\b/i, 'must be, or: the library does'],
  [/\bin order to\b/i, 'to'],
  [/\b(\w+) \1\b/i, 'once'],
  [/\bof (?:an? |the )?\w+ of (?:an? |the )?\w+ of\b/i, 'no chains of "of"'],
];

const FILES = ['lib', 'sample-app', 'test', 'tools', 'docs/.vitepress'].flatMap((folder) => {
  const files = readdirSync(join(REPOSITORY, folder), { recursive: true, encoding: 'utf8' });
  return files.map((file) => join(folder, file));
});
const CODE = FILES.filter(
  (file) => /\.(ts|mts|js|mjs)$/.test(file) && !/prose\.spec\.ts$|^docs\/\.vitepress\/\.temp/.test(file),
);
const PAGES = pages();

function linesThat(files: readonly string[], matches: (line: string) => boolean): string[] {
  return files.flatMap((file) => {
    const lines = readFileSync(join(REPOSITORY, file), 'utf8').split('\n');
    return lines.flatMap((line, index) => (matches(line) ? [`${file}:${index + 1}: ${line.trim()}`] : []));
  });
}

it('no comment is wider than the code', () => {
  expect(CODE.length).toBeGreaterThan(300);
  expect(linesThat(CODE, (line) => line.length > MOST_COLUMNS && COMMENT.test(line))).toEqual([]);
});

it('comments, test names and pages put the actor and the verb first', () => {
  expect(linesThat([...CODE, ...PAGES], (line) => TRANSLATED.test(line))).toEqual([]);
});

/** What the rules say about the sentences of a page. */
function remarksOn(page: string): string[] {
  return sentencesOf(page).flatMap(({ line, words: sentence }) => {
    const words = sentence.match(/[\p{L}\p{N}][\p{L}\p{N}'’.,-]*/gu)?.length ?? 0;
    const remarks = REFUSED.flatMap(([pattern, better]) => (pattern.test(sentence) ? [better] : []));
    if (words > MOST_WORDS) remarks.unshift(`${words} words`);
    return remarks.map((remark) => `${page}:${line}: ${remark}: ${sentence}`);
  });
}

it('pages say one thing in a sentence, in words that a reader reads once', () => {
  expect(PAGES.length).toBeGreaterThan(80);
  expect(PAGES.flatMap(remarksOn)).toEqual([]);
});
