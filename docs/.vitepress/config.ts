import { join } from 'node:path';
import { defineConfig, type DefaultTheme, type HeadConfig } from 'vitepress';
import { chinese, searchInChinese, wordsOf } from './chinese.js';
import { slugOf, useLinks } from './links.js';
import { writeMarkdownPages } from './markdown-pages.js';
import { BASE, DOCS, MANIFEST, NO_PAGES, REPOSITORY, ROOT, SITE } from './place.js';
import { usePromises } from './promises.js';
import { linkOf, openingOf, pagesOfNames, SECTIONS_WITH_PAGES, sidebar } from './sidebar.js';

const nameOf = (relativePath: string) => relativePath.replace(/\.md$/, '');
const ofReference = (relativePath: string) => relativePath.startsWith('reference/');

const sectionLinks = SECTIONS_WITH_PAGES.map(([text, [first = '']]) => ({ text, link: linkOf(first) }));
const section = (...names: string[]) => sectionLinks.filter(({ text }) => names.includes(text));
const nav: DefaultTheme.NavItem[] = [
  ...section('Start', 'Locks', 'Cache'),
  { text: 'More', items: section('Primitives', 'Recipes', 'Backends', 'Migrate', 'How it works') },
  ...section('Operate'),
  {
    text: 'Reference',
    items: [
      ...section('Reference').map((each) => ({ ...each, text: 'Options, errors, events' })),
      { text: 'API', link: '/reference/' },
    ],
  },
  {
    text: `v${MANIFEST.version}`,
    items: REPOSITORY
      ? [
          { text: 'Changelog', link: `${REPOSITORY}/blob/main/CHANGELOG.md` },
          { text: 'Releases', link: `${REPOSITORY}/releases` },
          { text: 'Contributing', link: `${REPOSITORY}/blob/main/CONTRIBUTING.md` },
        ]
      : [{ text: 'llms.txt', link: '/llms.txt', target: '_self' }],
  },
];

export default defineConfig({
  title: 'nest-redis-lock',
  description: MANIFEST.description,
  lang: 'en',
  base: BASE,
  cleanUrls: true,
  // The demo, on the reader's machine.
  ignoreDeadLinks: 'localhostLinks',
  srcExclude: NO_PAGES,
  rewrites: { 'guide/README.md': 'guide/index.md', 'zh/guide/README.md': 'zh/guide/index.md' },
  locales: { root: { label: 'English', lang: 'en' }, zh: chinese },
  outDir: join(ROOT, 'dist-site'),
  cacheDir: join(ROOT, 'node_modules/.cache/vitepress'),
  // The names of all pages stand in one file rather than in each page.
  metaChunk: true,
  // A page loads itself, and not the pages that it links to.
  router: { prefetchLinks: false },
  head: [
    ['link', { rel: 'icon', href: `${BASE}icon.svg`, type: 'image/svg+xml' }],
    ['meta', { name: 'theme-color', content: '#b3261e' }],
  ],
  ...(SITE ? { sitemap: { hostname: SITE } } : {}),

  markdown: {
    anchor: { slugify: slugOf },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config: (md) => {
      useLinks(md, pagesOfNames());
      usePromises(md);
    },
  },

  themeConfig: {
    nav,
    sidebar,
    outline: [2, 3],
    // Few pages have a translation: from the others, the switch leads to the start of the Chinese ones.
    i18nRouting: false,
    search: {
      provider: 'local',
      options: {
        // Guides answer questions. A page of the reference is found by its name, and by what it says first.
        _render: (source, env, md) =>
          md.render(ofReference(env.relativePath) ? (source.split(/^## /m)[0] ?? '') : source, env),
        locales: { zh: searchInChinese },
        miniSearch: {
          options: { tokenize: wordsOf },
          searchOptions: { boostDocument: (id: string) => (id.includes('/reference/') ? 0.2 : 1) },
        },
      },
    },
    ...(REPOSITORY
      ? {
          editLink: { pattern: `${REPOSITORY}/edit/main/docs/:path`, text: 'Edit this page' },
          socialLinks: [{ icon: 'github', link: REPOSITORY }],
        }
      : {}),
    footer: { message: 'MIT licence' },
    externalLinkIcon: true,
  },

  transformPageData(page) {
    const { title, description } = openingOf(nameOf(page.relativePath));
    page.title ||= title;
    page.description ||= description;
    if (ofReference(page.relativePath)) page.frontmatter['editLink'] = false;
    // Its tables hold code side by side, and need the place of the outline.
    if (page.relativePath.startsWith('migrate/')) page.frontmatter['aside'] = false;
  },

  transformHead({ pageData: { relativePath, title, description, isNotFound } }) {
    if (isNotFound) return [];
    const head: HeadConfig[] = [
      ['link', { rel: 'alternate', type: 'text/markdown', href: BASE + relativePath }],
      ['meta', { property: 'og:type', content: 'article' }],
      ['meta', { property: 'og:site_name', content: 'nest-redis-lock' }],
      ['meta', { property: 'og:title', content: title }],
      ['meta', { property: 'og:description', content: description }],
      ['meta', { name: 'twitter:card', content: 'summary_large_image' }],
    ];
    if (!SITE) return head;
    const address = SITE + nameOf(relativePath).replace(/(^|\/)index$/, '$1');
    return [
      ...head,
      ['link', { rel: 'canonical', href: address }],
      ['meta', { property: 'og:url', content: address }],
      ['meta', { property: 'og:image', content: `${SITE}social.png` }],
    ];
  },

  buildEnd: writeMarkdownPages,
  vite: {
    publicDir: join(DOCS, 'public'),
    // The search index, which loads with the first search.
    build: { chunkSizeWarningLimit: 1_000 },
  },
});
