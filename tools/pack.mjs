// Packs the build: node tools/pack.mjs <folder for the tarball> [URL of the repository]. Prints the path.
//
// It does more than `npm pack`: pages link by URL to what is not packed, or have no such links where the repository has
// no URL, and no file names a source map.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PAGES = ['README.md', 'CHANGELOG.md'];

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [destination = '.', repository] = process.argv.slice(2);
  console.log(pack(resolve(destination), repository));
}

/** Answers the path of the tarball. */
export function pack(destination, repository) {
  const folder = mkdtempSync(join(tmpdir(), 'nest-redis-lock-'));
  try {
    const manifest = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'));
    if (repository) manifest.repository = { type: 'git', url: `git+${repository}.git` };
    writeFileSync(`${folder}/package.json`, `${JSON.stringify(manifest, null, 2)}\n`);
    for (const path of ['LICENSE', 'dist', 'docs/postgres.sql'])
      cpSync(ROOT + path, `${folder}/${path}`, { recursive: true });
    for (const path of PAGES) {
      const text = readFileSync(ROOT + path, 'utf8');
      writeFileSync(
        `${folder}/${path}`,
        withLinksByUrl(text, repository && { repository, at: `v${manifest.version}` }),
      );
    }
    for (const path of readdirSync(`${folder}/dist`, { recursive: true, encoding: 'utf8' }))
      forgetSourceMap(`${folder}/dist/${path}`);
    const options = ['--ignore-scripts', '--silent', '--pack-destination', destination];
    return join(destination, execFileSync('npm', ['pack', ...options], { cwd: folder, encoding: 'utf8' }).trim());
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function forgetSourceMap(file) {
  if (!file.endsWith('.js')) return;
  writeFileSync(file, readFileSync(file, 'utf8').replace(/\n+\/\/# sourceMappingURL=\S+\s*$/, '\n'));
}

/**
 * The text of a page, whose links to files of the repository lead to its state `at` a tag. Without `place`, their texts
 * are left without links, and pictures are left out.
 */
export function withLinksByUrl(text, place) {
  const url = (kind, path) => `${place.repository}/${kind}/${place.at}/${path}`;
  if (!place) {
    return text
      .replaceAll(/<picture>[\s\S]*?<\/picture>\n*/g, '')
      .replaceAll(/!\[[^\]]*\]\((?!https?:)[^)\s]+\)\n*/g, '')
      .replaceAll(/\[([^\]]+)\]\((?!https?:|#)[^)\s]+\)/g, '$1');
  }
  return text
    .replaceAll(/(src(?:set)?=")(?!https?:)([^"]+)/g, (_all, before, path) => before + url('raw', path))
    .replaceAll(/(!\[[^\]]*\]\()(?!https?:)([^)\s]+)/g, (_all, before, path) => before + url('raw', path))
    .replaceAll(/(?<!!)(\[[^\]]+\]\()(?!https?:|#)([^)\s]+)/g, (_all, before, path) => before + url('blob', path));
}
