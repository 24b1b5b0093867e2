import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { PROGRAM } from '../support/cli.js';
import { eventually } from '../support/eventually.js';
import { startLockApp } from '../support/lock-app.js';
import { IMAGES } from '../support/screenshots.js';
import { openBrowser } from '../support/servers/chromium.js';
import { startRedisServer } from '../support/servers/redis-server.js';
import { Terminal } from '../support/terminal.js';

const XTERM = fileURLToPath(new URL('../../node_modules/@xterm/xterm/', import.meta.url));
const DEMO = fileURLToPath(new URL('../../dist-sample/demo/main.js', import.meta.url));

let browser: Browser;
beforeAll(async () => {
  browser = await openBrowser();
}, 240_000);
afterAll(() => browser.close());

/** Draws what a program sent to its terminal, with xterm.js, and answers the text on the screen. */
async function picture(sent: string, columns: number, name: string): Promise<string> {
  const page = await browser.newPage({ deviceScaleFactor: 2, viewport: { width: 1_400, height: 1_400 } });
  await page.addStyleTag({ path: `${XTERM}css/xterm.css` });
  await page.addScriptTag({ path: `${XTERM}lib/xterm.js` });
  const text = await page.evaluate<string>(`(async () => {
    const terminal = new Terminal({ cols: ${columns}, rows: 60, fontFamily: 'DejaVu Sans Mono, monospace', fontSize: 13, theme: { background: '#1b1f24' } });
    const frame = document.body.appendChild(document.createElement('div'));
    frame.id = 'frame';
    frame.style = 'display: inline-block; padding: 16px; background: #1b1f24';
    terminal.open(frame);
    await new Promise((written) => terminal.write(${JSON.stringify(`${sent.trimEnd()}\u001b[?25l`)}, written));
    const { active } = terminal.buffer;
    const lines = Array.from({ length: active.cursorY + 1 }, (_, row) => active.getLine(row).translateToString(true));
    terminal.resize(${columns}, lines.length);
    await new Promise((drawn) => setTimeout(drawn, 200));
    return lines.join('\\n');
  })()`);
  if (IMAGES) await page.locator('#frame').screenshot({ path: `${IMAGES}${name}.png` });
  await page.close();
  return text;
}

it('shows the demo', async () => {
  const options = ['--strategy', 'none,lock,fenced', '--no-cache-reads', '--no-primitives'];
  const terminal = Terminal.start([process.execPath, DEMO, ...options], {
    columns: 130,
    env: { REDIS_URL: '', DATABASE_URL: '' },
  });
  expect(await terminal.ended).toBe(0);
  const text = await picture(`$ npm run demo\r\n\r\n${terminal.shown}`, 130, 'terminal-demo');
  expect(text).toMatch(/none.*\b600\b/);
  expect(text).toMatch(/lock.*\b200\b/);
}, 120_000);

it('shows who holds a lock, and who waits for it', async () => {
  const server = await startRedisServer();
  const apps = await Promise.all(
    ['shop-1:311', 'shop-2:295', 'shop-3:304'].map((label) => startLockApp({ redis: server.url, label, cache: false })),
  );
  try {
    const [one, two, three] = apps as [(typeof apps)[0], (typeof apps)[0], (typeof apps)[0]];
    const order = await one.locks.acquire('order:1042', { ttl: '30s' });
    const waiting = [two, three].map(({ locks }) => locks.acquire('order:1042', { wait: '1m' }));
    const others = [
      await two.locks.acquire('stock:7', { ttl: '10s' }),
      await three.locks.acquire('nightly', { ttl: '5m' }),
    ];
    await eventually(async () => (await one.locks.inspect('order:1042'))?.waiting === waiting.length);
    const shown: string[] = [];
    for (const args of [['list'], ['inspect', 'order:1042']]) {
      const terminal = Terminal.start([process.execPath, PROGRAM, '--redis', server.url, ...args], { columns: 110 });
      expect(await terminal.ended).toBe(0);
      shown.push(`$ npx nest-redis-lock ${args.join(' ')}\r\n${terminal.shown}`);
    }
    const text = await picture(shown.join('\r\n'), 110, 'terminal-list');
    expect(text).toContain('stock:7');
    expect(text).toMatch(/order:1042.*shop-1/);
    await order.release();
    // Either of the two may have come first.
    await Promise.all(waiting.map(async (next) => (await next).release()));
    for (const other of others) await other.release();
  } finally {
    await Promise.all(apps.map((app) => app.close()));
    await server.stop();
  }
}, 60_000);
