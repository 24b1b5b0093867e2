import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { DefaultTheme } from 'vitepress';
import { ENTRIES } from '../../tools/entries.mjs';
import { DOCS } from './place.js';

/** The pages of each section, in the order in which they are read. */
const SECTIONS = {
  Start: [
    'guide/getting-started',
    'guide/mental-model',
    'guide/index',
    'guide/demo',
    'guide/testing',
    'guide/limits',
    'glossary',
  ],
  Locks: [
    'guide/locks',
    'guide/lock-queue',
    'guide/several-names',
    'guide/read-write-locks',
    'guide/decorators',
    'guide/keys',
    'guide/transports',
  ],
  Cache: [
    'guide/caching',
    'guide/cache-decorators',
    'guide/cache-invalidation',
    'guide/consistency',
    'guide/first-level',
    'guide/cache-operations',
    'guide/cache-collections',
    'guide/cache-values',
    'guide/http-headers',
  ],
  Primitives: [
    'guide/scheduled-jobs',
    'guide/leader-election',
    'guide/idempotency',
    'guide/idempotency-key',
    'guide/rate-limit',
    'guide/semaphore',
    'guide/latch',
  ],
  Recipes: pagesIn('recipes'),
  Backends: [
    'guide/choosing-a-backend',
    'guide/redis',
    'guide/redlock',
    'guide/postgres',
    'guide/mysql',
    'guide/etcd',
    'guide/zookeeper',
    'guide/writing-a-backend',
    'guide/backend-promises',
  ],
  Operate: [
    'operations/checklist',
    'guide/operating',
    'guide/outages',
    'operations/shutdown',
    'operations/rolling-updates',
    'operations/health',
    'operations/metrics',
    'operations/monitoring',
    'operations/tracing',
    'operations/inspection',
    'operations/troubleshooting',
  ],
  Runbooks: pagesIn('operations/runbooks'),
  Migrate: pagesIn('migrate'),
  'How it works': ['protocol', 'cache-protocol', 'simulation', 'architecture', 'benchmarks'],
  Reference: ['guide/options', 'guide/errors', 'guide/events', 'reference/index'],
} as const satisfies Record<string, readonly string[]>;

/** What a page begins with: its title, and its first sentences. */
export interface Opening {
  readonly title: string;
  readonly description: string;
}

/** Of a page, named without `.md`. */
export function openingOf(page: string): Opening {
  const text = readFileSync(sourceOf(page), 'utf8').replaceAll(/^(```|---\n)[\s\S]*?^\1/gm, '');
  const title = /^# (.+)$/m.exec(text)?.[1] ?? page;
  // The first block that is no heading, list, table, quotation or tag.
  const prose =
    text.split(/\n\s*\n/).find((block) => /^\s*[^#|>\s<-]/.test(block.trim()) && !block.startsWith('[')) ?? title;
  const plain = prose
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/[`*]/g, '')
    .replace(/^\s*(Problem: |The problem\. )/, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
  const sentences = plain.split(/(?<=[.?!] |[。？！])/);
  let description = sentences.shift() ?? '';
  while (sentences[0] && `${description}${sentences[0]}`.trim().length <= 160) description += sentences.shift();
  description = description.trim();
  return {
    title: title.replaceAll(/[`\\]/g, ''),
    description: description.charAt(0).toUpperCase() + description.slice(1),
  };
}

/** The file of a page. A folder whose index is written as a README, for GitHub, has it as its index here. */
export function sourceOf(page: string): string {
  const file = join(DOCS, `${page}.md`);
  return existsSync(file) ? file : file.replace(/index\.md$/, 'README.md');
}

function pagesIn(folder: string): readonly string[] {
  const path = join(DOCS, folder);
  if (!existsSync(path)) return [];
  return readdirSync(path)
    .filter((file) => file.endsWith('.md'))
    .map((file) => `${folder}/${file.slice(0, -3)}`);
}

/** The sections that have pages, with them. */
export const SECTIONS_WITH_PAGES: readonly (readonly [string, readonly string[]])[] = Object.entries(SECTIONS).filter(
  ([, pages]) => pages.length > 0,
);

export const linkOf = (page: string) => `/${page.replace(/(^|\/)index$/, '$1')}`;

// A section that can be folded is a link, too: otherwise VitePress puts its button into another button.
const guide: DefaultTheme.SidebarItem[] = SECTIONS_WITH_PAGES.map(([text, pages]) => ({
  text,
  link: linkOf(pages[0] ?? ''),
  collapsed: text !== 'Start',
  items: pages.map((page) => ({ text: openingOf(page).title, link: linkOf(page) })),
}));

/** What an entry point exports, as the reference has it: `[kind, names]`. */
function exportsOf(entry: string): [kind: string, names: string[]][] {
  const folder = join(DOCS, entry);
  const kinds = ['classes', 'functions', 'interfaces', 'type-aliases', 'variables'];
  return kinds
    .filter((kind) => existsSync(join(folder, kind)))
    .map((kind) => [kind, pagesIn(`${entry}/${kind}`).map((page) => page.split('/').at(-1) ?? page)]);
}

/** The page of each entry point of the package. */
export const ENTRY_PAGES = new Map(
  Object.keys(ENTRIES).map((entry) => {
    const name = entry === 'index' ? 'nest-redis-lock' : `nest-redis-lock/${entry}`;
    return [name, `reference/${name}`];
  }),
);

const entries = Array.from(ENTRY_PAGES, ([text, page]) => ({ text, link: `/${page}/` }));

/** Beside the reference: all entry points, and what one calls of the one that is read. Its page has its types, too. */
function besideEntry(entry: string): DefaultTheme.SidebarItem[] {
  const called = exportsOf(entry).filter(([kind]) => ['classes', 'functions'].includes(kind));
  return [
    { text: 'API reference', link: '/reference/', items: entries },
    ...called.map(([kind, names]) => ({
      text: kind === 'classes' ? 'Classes' : 'Functions and decorators',
      items: names.map((name) => ({ text: name, link: `/${entry}/${kind}/${name}` })),
    })),
  ];
}

// VitePress takes the one with the longest path.
export const sidebar: DefaultTheme.SidebarMulti = {
  '/': guide,
  '/reference/': besideEntry('reference/nest-redis-lock'),
  ...Object.fromEntries(Array.from(ENTRY_PAGES.values(), (entry) => [`/${entry}/`, besideEntry(entry)])),
};

/** The page of each name that one entry point exports. A name that several export has none. */
export function pagesOfNames(): ReadonlyMap<string, string> {
  const found = new Map<string, string | undefined>();
  for (const entry of ENTRY_PAGES.values()) {
    for (const [kind, names] of exportsOf(entry)) {
      for (const name of names) found.set(name, found.has(name) ? undefined : `/${entry}/${kind}/${name}.md`);
    }
  }
  return new Map([...found].filter((each): each is [string, string] => each[1] !== undefined));
}
