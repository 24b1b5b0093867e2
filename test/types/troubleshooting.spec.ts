import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

const read = (file: string) => readFileSync(join(REPOSITORY, file), 'utf8');
const filesIn = (folder: string) => readdirSync(join(REPOSITORY, folder)).map((file) => `${folder}/${file}`);
const namesIn = (text: string, pattern: RegExp) => [...new Set(Array.from(text.matchAll(pattern), ([, name]) => name))];

const PAGE = read('docs/operations/troubleshooting.md');
const ERRORS = filesIn('lib/errors').map(read).join('\n');

/** The rows of the page that begin with this. */
function rowsOf(name: string | undefined): string[] {
  return PAGE.split('\n').filter((line) => line.startsWith(`| \`${name}\``));
}

it('has one row for every public error, with its code', () => {
  const reports = filesIn('docs/api-report').map(read).join('\n');
  const errors = namesIn(reports, /^export class (\w+Error)\b/gm);
  expect(errors.length).toBeGreaterThan(20);
  expect(errors.filter((name) => rowsOf(name).length !== 1)).toEqual([]);
  const declared = ERRORS.split(/^(?=export (?:abstract )?class )/m);
  const wrong = errors.filter((name) => {
    const own = declared.find((text) => text.startsWith(`export class ${name} `)) ?? '';
    const [code] = namesIn(own, /\bcode: '([A-Z_]+)'/g);
    return code !== undefined && !rowsOf(name)[0]?.includes(`| \`${code}\` `);
  });
  expect(wrong).toEqual([]);
});

it('names every code of an error', () => {
  const types = Array.from(
    ERRORS.matchAll(/ErrorCode =([^;]+);|extends PrimitiveError<('[A-Z_]+')>/g),
    ([type]) => type,
  );
  const codes = namesIn(types.join('\n'), /'([A-Z_]+)'/g);
  expect(codes.length).toBeGreaterThan(20);
  expect(codes.filter((code) => !PAGE.includes(`| \`${code}\` `))).toEqual([]);
});

it('names every answer of Redis for which the library knows a remedy', () => {
  const patterns = read('lib/backends/redis/connection/diagnosis.ts').match(/^ {2,4}\[?\/.*\/,/gm) ?? [];
  const answers = namesIn(patterns.join('\n'), /\b([A-Z]{3,})\b/g).filter(
    (word) => !/^(ERR|CERT|SELF|TLS|UNABLE|ACL|E[A-Z]+)$/.test(word ?? ''),
  );
  expect(answers).toContain('READONLY');
  expect(answers.length).toBeGreaterThan(6);
  expect(answers.filter((answer) => !PAGE.includes(`\`${answer}\``))).toEqual([]);
});
