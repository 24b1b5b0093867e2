import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));
const MOST_COLUMNS = 120;
const COMMENT = /^\s*(\*|\/\*|\/\/|--) ?/;

/** Where the text says less plainly what `who does what, for how long` would say. */
const TRANSLATED = /\b(so many|so long(?! (as|that))|whoever|(is|are|was) told|left alone|bears|hears|has to say)\b/i;

const GENERATED = /^docs\/(api|reference|\.vitepress\/\.temp)\//;

const FILES = ['lib', 'sample-app', 'test', 'tools', 'docs'].flatMap((folder) => {
  const files = readdirSync(join(REPOSITORY, folder), { recursive: true, encoding: 'utf8' });
  return files.map((file) => join(folder, file)).filter((file) => !GENERATED.test(file));
});
const CODE = FILES.filter((file) => /\.(ts|mts|js|mjs)$/.test(file) && !file.endsWith('prose.spec.ts'));
const PAGES = ['README.md', 'CONTRIBUTING.md', ...FILES.filter((file) => file.endsWith('.md'))];

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
