import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { SiteConfig } from 'vitepress';
import { DOCS, MANIFEST, placeOf, SITE, toIndex } from './place.js';
import { ENTRY_PAGES, openingOf, SECTIONS_WITH_PAGES, sourceOf } from './sidebar.js';

/** Writes each page as Markdown beside its HTML, and llms.txt and llms-full.txt: https://llmstxt.org. */
export function writeMarkdownPages({ pages, outDir }: SiteConfig): void {
  for (const page of pages) {
    const file = join(outDir, toIndex(page));
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, markdownOf(join(DOCS, page)));
  }
  // HTML has them under names with a hash.
  cpSync(join(DOCS, 'images'), join(outDir, 'images'), { recursive: true });

  const line = (page: string) => {
    const { title, description } = openingOf(page);
    return `- [${title}](${SITE ?? '/'}${page}.md): ${description}\n`;
  };
  const sections = SECTIONS_WITH_PAGES.map(([name, own]) => `## ${name}\n\n${own.map(line).join('')}`);
  const entries = Array.from(ENTRY_PAGES, ([name, page]) => `- [${name}](${SITE ?? '/'}${page}/index.md)\n`);
  const index = [`# nest-redis-lock\n\n> ${MANIFEST.description}\n`, ...sections, `## API\n\n${entries.join('')}`];
  writeFileSync(join(outDir, 'llms.txt'), index.join('\n'));
  // The reference repeats the declarations that the package carries.
  const told = SECTIONS_WITH_PAGES.flatMap(([, own]) => own).filter((page) => !page.startsWith('reference/'));
  writeFileSync(
    join(outDir, 'llms-full.txt'),
    told.map((page) => `<!-- ${SITE ?? '/'}${page}.md -->\n\n${markdownOf(sourceOf(page))}`).join('\n'),
  );
}

/** The text of a page, with links that work where the site is. */
function markdownOf(file: string): string {
  const parts = readFileSync(file, 'utf8')
    .replace(/^---\n[\s\S]*?\n---\n\n?/, '')
    .split(/(^```[\s\S]*?^```$)/m);
  return parts
    .map((part, index) =>
      index % 2 === 1 ? part : part.replaceAll(/(!?)\[((?:[^[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)/g, relinked),
    )
    .join('');

  function relinked(_all: string, mark: string, text: string, link: string): string {
    const place = placeOf(link, file);
    return place === null ? text : `${mark}[${text}](${place})`;
  }
}
