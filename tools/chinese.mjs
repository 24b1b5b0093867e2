import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const REPOSITORY = fileURLToPath(new URL('..', import.meta.url));
/** `source: docs/guide/locks.md 0123456789ab`: the English page, and the hash of the text that was translated. */
const SOURCE = /^(?:---\n|<!-- )source: (\S+) ([0-9a-f]{12})(?= -->$|$)/m;

const read = (file) => readFileSync(join(REPOSITORY, file), 'utf8');
const hashOf = (text) => createHash('sha256').update(text).digest('hex').slice(0, 12);
const blocksOf = (text) => text.match(/^```[\s\S]*?^```$/gm) ?? [];
const headingsOf = (text) => text.replaceAll(/^```[\s\S]*?^```$/gm, '').match(/^#+ /gm) ?? [];

/** A sample without its comments. Drawings and outputs have no language: their words are translated. */
function codeOf(block) {
  if (block.startsWith('```\n')) return '```';
  return block.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/(^|[ \t]+)(\/\/|#|--) .*$/gm, '');
}

/** The Chinese pages, from the root of the repository. */
export function chinesePages() {
  const pages = readdirSync(join(REPOSITORY, 'docs/zh'), { recursive: true, encoding: 'utf8' });
  return ['README.zh-CN.md', ...pages.filter((page) => page.endsWith('.md')).map((page) => `docs/zh/${page}`)];
}

/** How a Chinese page differs from its English one. `undefined` where it is in step. */
export function differenceOf(page, text = read(page)) {
  const [, source, hash] = SOURCE.exec(text) ?? [];
  if (!source) return 'names no source';
  if (!existsSync(join(REPOSITORY, source))) return `${source} does not exist`;
  const english = read(source);
  const expected = blocksOf(english).map(codeOf);
  const own = blocksOf(text).map(codeOf);
  const other = own.findIndex((code, index) => code !== expected[index]);
  if (own.length !== expected.length || other !== -1) {
    return `sample ${other === -1 ? own.length : other + 1} is not that of ${source}`;
  }
  if (headingsOf(text).join('') !== headingsOf(english).join('')) return `has other headings than ${source}`;
  return hash === hashOf(english) ? undefined : `${source} has changed: revise the translation, then npm run docs:zh`;
}

// `npm run docs:zh [-- <pages>]`: these translations have been revised, or all. Writes the hashes of their sources.
if (resolve(process.argv[1] ?? '') === fileURLToPath(import.meta.url)) {
  const revised = process.argv.slice(2);
  for (const page of revised.length > 0 ? revised : chinesePages()) {
    const text = read(page).replace(SOURCE, (line, source) => line.slice(0, -12) + hashOf(read(source)));
    if (text !== read(page)) {
      writeFileSync(join(REPOSITORY, page), text);
      console.log(`${page}: in step with the text of its source`);
    }
    const difference = differenceOf(page, text);
    if (difference) {
      console.error(`${page}: ${difference}`);
      process.exitCode = 1;
    }
  }
}
