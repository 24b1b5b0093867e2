import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import axe, { type AxeResults } from 'axe-core';
import getPort from 'get-port';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { eventually } from '../support/eventually.js';
import { openBrowser } from '../support/servers/chromium.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BUILT = join(ROOT, 'dist-site');
const ADDRESS = process.env['SITE_URL']?.replace(/\/*$/, '/') as string;
const BASE = new URL(ADDRESS).pathname;
/** A folder for pictures of what is checked. */
const PICTURES = process.env['SCREENSHOTS'];
const MOST_BYTES = 300_000;

const FILES = readdirSync(BUILT, { recursive: true, encoding: 'utf8' });
const PAGES = FILES.filter((file) => file.endsWith('.html'));
const read = (file: string) => readFileSync(join(BUILT, file), 'utf8');

describe('the files', () => {
  /** The file that a server sends for a path, as GitHub Pages does. */
  function fileAt(path: string): string | undefined {
    const found = [path, `${path}.html`, join(path, 'index.html')].find(
      (file) => existsSync(join(BUILT, file)) && !statSync(join(BUILT, file)).isDirectory(),
    );
    return found;
  }

  const anchors = new Map<string, ReadonlySet<string>>();
  function anchorsOf(file: string): ReadonlySet<string> {
    const known = anchors.get(file) ?? new Set(Array.from(read(file).matchAll(/ id="([^"]+)"/g), ([, id = '']) => id));
    anchors.set(file, known);
    return known;
  }

  /** What is wrong about a link that stays on the site. */
  function problemOf(link: string, from: string): string | undefined {
    const { origin, pathname, hash } = new URL(link, `https://site${BASE}${from}`);
    if (origin !== 'https://site') return undefined;
    if (!pathname.startsWith(BASE)) return 'leaves the base of the site';
    const file = fileAt(decodeURIComponent(pathname.slice(BASE.length)));
    if (!file) return 'leads to no file';
    if (hash.length < 2 || !file.endsWith('.html')) return undefined;
    return anchorsOf(file).has(decodeURIComponent(hash.slice(1))) ? undefined : 'leads to no heading';
  }

  function wrongLinks(files: readonly string[], pattern: RegExp): { checked: number; wrong: string[] } {
    let checked = 0;
    const wrong = files.flatMap((file) => {
      const links = new Set(Array.from(read(file).matchAll(pattern), ([, link = '']) => link.replaceAll('&amp;', '&')));
      checked += links.size;
      return [...links].flatMap((link) => {
        const problem = problemOf(link, file);
        return problem ? [`${file}: ${link} ${problem}`] : [];
      });
    });
    return { checked, wrong };
  }

  it('link only to files and headings that exist', () => {
    const { checked, wrong } = wrongLinks(PAGES, / (?:href|src)="([^"]*)"/g);
    expect(checked).toBeGreaterThan(10_000);
    expect(wrong).toEqual([]);
  });

  it('has each page as Markdown, whose links lead to files that exist', () => {
    const pages = PAGES.filter((file) => file !== '404.html').map((file) => file.replace(/html$/, 'md'));
    expect(pages.filter((page) => !existsSync(join(BUILT, page)))).toEqual([]);
    const written = pages.filter((page) => !page.startsWith('reference/'));
    expect(wrongLinks(written, /\]\(([^)\s#]+)[^)\s]*\)/g).wrong).toEqual([]);
  });

  it('lists each page in llms.txt, and so in the sidebar', () => {
    const index = read('llms.txt');
    const pages = PAGES.filter((file) => !/^(404|index|(reference|zh)\/.*)\.html$/.test(file));
    const addresses = pages.map((file) => ADDRESS + file.replace(/html$/, 'md'));
    expect(addresses.length).toBeGreaterThan(60);
    expect(addresses.filter((address) => !index.includes(`](${address})`))).toEqual([]);
    expect(read('llms-full.txt').length).toBeGreaterThan(200_000);
  });

  it('leads to the repository for files that are no pages', () => {
    const repository = `https://github.com/${process.env['GITHUB_REPOSITORY']}`;
    expect(read('index.html')).toContain(`href="${repository}/tree/main/sample-app/src"`);
    expect(read('guide/locks.html')).toContain(`href="${repository}/edit/main/docs/guide/locks.md"`);
    expect(read('guide/locks.md')).toContain(`(${repository}/blob/main/sample-app/`);
  });

  it('says to search engines and social sites what each page is', () => {
    for (const page of ['guide/locks', 'reference/nest-redis-lock/classes/LockService']) {
      const html = read(`${page}.html`);
      expect(html).toContain(`<link rel="canonical" href="${ADDRESS}${page}">`);
      expect(html).toContain(`<meta property="og:image" content="${ADDRESS}social.png">`);
      expect(html).toMatch(/<meta name="description" content="[^"]{30,}">/);
      expect(read('sitemap.xml')).toContain(`<loc>${ADDRESS}${page}</loc>`);
    }
    expect(existsSync(join(BUILT, 'social.png'))).toBe(true);
  });

  it('leads from a page in Chinese to the English one, and back to the start of the Chinese ones', () => {
    expect(read('zh/guide/locks.html')).toContain(`href="${BASE}guide/locks"`);
    expect(read('guide/locks.html')).toContain(`href="${BASE}zh/"`);
    expect(read('zh/guide/locks.html')).toContain('<html lang="zh-CN"');
  });

  it('links names of the API to the reference', () => {
    expect(read('guide/locks.html')).toContain(`href="${BASE}reference/nest-redis-lock/`);
  });
});

describe('the pages in a browser', () => {
  const LOOKS: Record<string, BrowserContextOptions> = {
    light: { colorScheme: 'light', viewport: { width: 1_280, height: 900 } },
    dark: { colorScheme: 'dark', viewport: { width: 1_280, height: 900 } },
    phone: { colorScheme: 'light', viewport: { width: 360, height: 740 } },
  };
  const SHOWN = {
    start: '',
    guide: 'guide/locks',
    recipe: 'recipes/stock-that-does-not-oversell',
    operate: 'operations/troubleshooting',
    drawings: 'protocol',
    chinese: 'zh/guide/caching',
    reference: 'reference/nest-redis-lock/classes/LockService',
  };

  let browser: Browser;
  let server: ChildProcess;
  let site: string;
  /** What the browser complained about, and what it asked others for. */
  const problems: string[] = [];

  beforeAll(async () => {
    const port = await getPort();
    const vitepress = join(ROOT, 'node_modules/vitepress/bin/vitepress.js');
    server = spawn(process.execPath, [vitepress, 'preview', 'docs', '--port', String(port)], { cwd: ROOT });
    site = `http://localhost:${port}${BASE}`;
    const up = async () => (await fetch(site).catch(() => undefined))?.ok;
    [browser] = await Promise.all([openBrowser(), eventually(up, { every: 100 })]);
  });
  afterEach(() => expect(problems.splice(0)).toEqual([]));
  afterAll(async () => {
    server.kill();
    await browser.close();
  });

  async function open(path: string, options: BrowserContextOptions): Promise<Page> {
    const page = await browser.newPage({ reducedMotion: 'reduce', ...options });
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) problems.push(message.text());
    });
    page.on('pageerror', (error) => problems.push(String(error)));
    page.on('request', (request) => {
      if (!request.url().startsWith(site) && !request.url().startsWith('data:')) problems.push(request.url());
    });
    await page.goto(site + path, { waitUntil: 'networkidle' });
    // Before its script runs, a key does nothing.
    if (options.javaScriptEnabled !== false) {
      await page.waitForFunction("'__vue_app__' in document.querySelector('#app')");
    }
    return page;
  }

  /** What axe-core finds against WCAG 2.2 AA, and calls serious or critical. */
  async function violations(page: Page, part = 'html'): Promise<string[]> {
    if (!(await page.evaluate<boolean>('"axe" in window'))) await page.evaluate(axe.source);
    const found = await page.evaluate<AxeResults>(
      `axe.run('${part}', { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice'] })`,
    );
    return found.violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
  }

  const cases = Object.keys(SHOWN).flatMap((page) => Object.keys(LOOKS).map((look) => [page, look] as const));
  it.each(cases as [keyof typeof SHOWN, keyof typeof LOOKS][])('%s, %s: accessible and light', async (name, look) => {
    const page = await open(SHOWN[name], LOOKS[look] as BrowserContextOptions);
    if (PICTURES) await page.screenshot({ path: join(PICTURES, `${name}-${look}.png`) });
    expect(await violations(page)).toEqual([]);
    expect(
      await page.evaluate<boolean>('document.documentElement.scrollWidth > document.documentElement.clientWidth'),
    ).toBe(false);
    const bytes = await page.evaluate<number>(
      `[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
        .reduce((sum, { transferSize }) => sum + transferSize, 0)`,
    );
    expect(bytes).toBeGreaterThan(10_000);
    expect(bytes).toBeLessThanOrEqual(MOST_BYTES);
    await page.close();
  });

  // Those of the reference are made by one theme, of which a page is looked at above.
  const checked = PAGES.filter((file) => !/^(404|reference\/.*)\.html$/.test(file));
  const shares = Array.from({ length: Math.ceil(checked.length / 20) }, (_, share) => share * 20);
  it.each(shares)('has pages whose text is accessible, from page %i on', async (from) => {
    const files = checked.slice(from, from + 20);
    const findings = await Promise.all(
      [0, 1].map((half) => findingsIn(files.filter((_, index) => index % 2 === half))),
    );
    expect(findings.flat()).toEqual([]);
  });

  /**
   * Shows the text of each file in turn in one page, with its style sheet: a page of its own would take four times as
   * long, for navigation, the script of the site and that of axe-core.
   */
  async function findingsIn(files: readonly string[]): Promise<string[]> {
    const page = await open('guide/locks', LOOKS['dark'] as BrowserContextOptions);
    const findings: string[] = [];
    for (const file of files) {
      await page.evaluate(`{
        const text = new DOMParser().parseFromString(${JSON.stringify(read(file))}, 'text/html').querySelector('.vp-doc');
        document.querySelector('.vp-doc').replaceWith(text);
      }`);
      findings.push(...(await violations(page, '.vp-doc')).map((finding) => `${file}: ${finding}`));
    }
    await page.close();
    return findings;
  }

  it('can be read, and left by a link, without JavaScript', async () => {
    const page = await open('guide/getting-started', { javaScriptEnabled: false, ...LOOKS['light'] });
    await page.getByRole('heading', { name: 'Lock a method' }).waitFor();
    await page.getByText('A second request for the same order waits').waitFor();
    await page.getByRole('main').getByRole('link', { name: 'Decorators' }).first().click();
    await page.getByRole('heading', { name: 'Where they work' }).waitFor();
    await page.close();
  });

  /** What users of other libraries asked their trackers, in the words that they searched with, and the page for it. */
  const QUESTIONS: readonly (readonly [from: string, words: string, page: string, start: string])[] = [
    ['mike-marcacci/node-redlock#73', 'auto extend lock', 'guide/locks', ''],
    ['mike-marcacci/node-redlock#64', 'lock multi resources in cluster mode', 'guide/several-names', ''],
    ['mike-marcacci/node-redlock#54', 'mock lock unit testing', 'guide/testing', ''],
    ['swarthy/redis-semaphore#9', 'lost mutex event loop blocked', 'guide/locks', ''],
    ['swarthy/redis-semaphore#12', 'lock not released when process crashes', 'operations/troubleshooting', ''],
    ['nestjs-redisx/nestjs-redisx#1', 'cache stampede', 'guide/caching', ''],
    ['jaredwray/cacheable#978', 'delete all keys matching a pattern', 'guide/cache-invalidation', ''],
    ['nestjs/cache-manager#797', 'cache blocks when redis connection is lost', 'guide/outages', ''],
    ['node-cron/node-cron#393', 'duplicate cron jobs cluster mode', 'recipes/job-on-one-machine', ''],
    ['nestjs/graphql#443', 'cache graphql', 'recipes/graphql', ''],
    ['nestjs/throttler#427', 'rate limit ip behind reverse proxy', 'guide/rate-limit', ''],
    ['OptimalBits/bull#2536', 'bullmq maxRetriesPerRequest', 'recipes/bullmq-workers', ''],
    ['redisson/redisson#2590', '进程崩溃 锁 释放', 'zh/guide/locks', 'zh/'],
    ['node-schedule/node-schedule#417', '多实例 定时任务 重复执行', 'zh/recipes/job-on-one-machine', 'zh/'],
    ['jaredwray/cacheable#88', '缓存击穿', 'zh/guide/caching', 'zh/'],
    ['joshuaslate/type-cacheable#275', '按前缀删除', 'zh/guide/cache-invalidation', 'zh/'],
  ];
  it.each([
    ['English', ''],
    ['Chinese', 'zh/'],
  ])('has the answers to questions of users among the first five results, in %s', async (_language, start) => {
    const page = await open(start, LOOKS['light'] as BrowserContextOptions);
    await page.keyboard.press('Control+k');
    const unanswered: string[] = [];
    for (const [from, words, answer] of QUESTIONS.filter((question) => question[3] === start)) {
      await page.getByRole('searchbox').fill(words);
      const first = page.locator(`.results li:nth-child(-n+5) a[href^="${BASE}${answer}"]`).first();
      await first.waitFor({ timeout: 20_000 }).catch(() => unanswered.push(`${from}: ${words}`));
      await page.getByRole('searchbox').fill('');
      await page.locator('.results .result').first().waitFor({ state: 'detached' });
    }
    expect(unanswered).toEqual([]);
    await page.close();
  });

  it.each([
    ['lock lost', 'When the lock is lost', ''],
    ['DistributedLock', 'DistributedLock', ''],
    ['雪崩', '缓存', 'zh/'], // a word inside a sentence without spaces
  ])('answers a search for %s', async (words, title, start) => {
    const page = await open(start, LOOKS['light'] as BrowserContextOptions);
    await page.keyboard.press('Control+k');
    await page.getByRole('searchbox').fill(words);
    await page.locator('.results .result').filter({ hasText: title }).first().waitFor();
    await page.close();
  });
});
