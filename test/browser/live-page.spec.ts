import axe, { type AxeResults } from 'axe-core';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { eventually } from '../support/eventually.js';
import { LiveDemo } from '../support/live-demo.js';
import { IMAGES } from '../support/screenshots.js';
import { openBrowser } from '../support/servers/chromium.js';

const DESKTOP = { width: 1_200, height: 1_330 };
const PHONE = { width: 360, height: 740 };
const PATIENCE = { within: 40_000, every: 50 };

let demo: LiveDemo;
let browser: Browser;
/** What the browser complained about, and what it asked others for. */
const problems: string[] = [];

beforeAll(async () => {
  [browser, demo] = await Promise.all([openBrowser(), LiveDemo.start([])]);
}, 240_000);
afterEach(async () => {
  // A sale that a failed test has left would disturb the next.
  await demo.post('/sales/stop');
  expect(problems.splice(0)).toEqual([]);
});
afterAll(async () => {
  await browser.close();
  await demo.interrupt();
});

async function openPage(options: BrowserContextOptions): Promise<Page> {
  const page = await browser.newPage({ reducedMotion: 'reduce', ...options });
  page.setDefaultTimeout(PATIENCE.within);
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('request', (request) => {
    if (!request.url().startsWith(demo.url) && !request.url().startsWith('data:')) problems.push(request.url());
  });
  await page.goto(`${demo.url}/`);
  await page.getByText('Connected', { exact: true }).waitFor();
  return page;
}

async function startSale(page: Page, strategy: string, numbers: Record<string, number>): Promise<void> {
  await page.getByRole('combobox', { name: 'Strategy' }).selectOption(strategy);
  for (const [label, value] of Object.entries(numbers))
    await page.getByLabel(label, { exact: true }).fill(String(value));
  await page.getByRole('button', { name: 'Start the sale' }).click();
  await page.getByRole('button', { name: 'End it now' }).and(page.locator(':enabled')).waitFor();
}

async function untilOver(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Start the sale' }).and(page.locator(':enabled')).waitFor();
}

async function figure(page: Page, id: string): Promise<number> {
  return Number((await page.locator(`#${id}`).textContent())?.replaceAll(',', ''));
}

/** What axe-core finds against WCAG 2.2 AA, as text. */
async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const found = await page.evaluate<AxeResults>(
    'axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"] })',
  );
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
}

function sidewaysScroll(page: Page): Promise<boolean> {
  return page.evaluate<boolean>('document.documentElement.scrollWidth > document.documentElement.clientWidth');
}

async function screenshot(page: Page, name: string): Promise<void> {
  if (IMAGES) await page.screenshot({ path: `${IMAGES}${name}.png`, animations: 'disabled' });
}

it('sells by a click, shows the numbers move, and goes on after a process is killed and started again', async () => {
  const page = await openPage({ viewport: DESKTOP });
  await startSale(page, 'none', { 'Pieces in stock': 100, Orders: 300, 'Orders at once': 60 });
  await untilOver(page);
  const [accepted, oversold] = [await figure(page, 'accepted'), await figure(page, 'oversold')];
  expect(oversold).toBe(accepted - 100);
  expect(oversold).toBeGreaterThan(0);

  await startSale(page, 'fenced', { 'Pieces in stock': 100_000, Orders: 100_000, 'Orders at once': 60 });
  await eventually(async () => (await figure(page, 'left')) < 100_000, PATIENCE);
  await page.getByRole('button', { name: 'Kill process 2' }).click();
  const restart = page.getByRole('button', { name: 'Start again process 2' });
  await restart.waitFor();
  const soldBefore = await figure(page, 'accepted');
  await eventually(async () => (await figure(page, 'accepted')) > soldBefore, PATIENCE);
  // The button keeps the focus although its name has changed.
  expect(await page.evaluate<string>('document.activeElement.ariaLabel')).toBe('Start again process 2');
  await restart.click();
  await page.getByRole('button', { name: 'Kill process 2' }).waitFor();
  await page.getByRole('log').getByText('Process 2 was started again').waitFor();
  expect(await figure(page, 'oversold')).toBe(0);
  await page.getByRole('button', { name: 'End it now' }).click();
  await untilOver(page);
  expect(await page.locator('#results tr').count()).toBe(2);
  await page.close();
});

it('says why it refuses a sale, in an alert', async () => {
  const page = await openPage({ viewport: DESKTOP });
  await page.evaluate("document.getElementById('sale-form').noValidate = true");
  await page.getByLabel('Orders at once').fill('0');
  await page.getByRole('button', { name: 'Start the sale' }).click();
  await page.getByRole('alert').getByText('concurrency: give a whole number from 1 to 2000').waitFor();
  // The browser logs an answer of 400 by itself.
  expect(problems.splice(0)).toEqual([expect.stringContaining('400 (Bad Request)')]);
  await page.close();
});

it('can be used by keyboard alone', async () => {
  const page = await openPage({ viewport: DESKTOP });
  await page.getByRole('combobox', { name: 'Strategy' }).focus();
  const names = [];
  for (let presses = 0; presses < 25; presses++) {
    names.push(await page.evaluate<string>('document.activeElement.ariaLabel ?? document.activeElement.name ?? ""'));
    await page.keyboard.press('Tab');
  }
  expect(names).toEqual(expect.arrayContaining(['concurrency', 'Freeze process 1', 'Kill process 3']));
  await page.close();
});

it.each([
  ['live-light', { viewport: DESKTOP, colorScheme: 'light' }],
  ['live-dark', { viewport: DESKTOP, colorScheme: 'dark' }],
  ['live-phone', { viewport: PHONE, colorScheme: 'light', isMobile: true, deviceScaleFactor: 1 }],
] as const)('is accessible and fits, as %s, while processes are broken', async (name, options) => {
  const page = await openPage(options);
  await startSale(page, 'fenced', { 'Pieces in stock': 1_000, Orders: 100_000, 'Orders at once': 60 });
  await eventually(async () => (await figure(page, 'left')) < 800, PATIENCE);
  await page.getByRole('button', { name: 'Freeze process 3' }).click();
  await page.getByRole('button', { name: 'Resume process 3' }).waitFor();
  await eventually(async () => (await figure(page, 'left')) < 700, PATIENCE);
  const top = options.viewport === PHONE ? 'stock-title' : 'connection';
  await page.evaluate(`document.getElementById('${top}').closest('section, main').scrollIntoView()`);
  await screenshot(page, name);
  expect(await violations(page)).toEqual([]);
  expect(await sidewaysScroll(page)).toBe(false);
  await page.getByRole('button', { name: 'Resume process 3' }).click();
  await page.getByRole('button', { name: 'End it now' }).click();
  await untilOver(page);
  await page.close();
});
