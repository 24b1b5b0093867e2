import { fileURLToPath } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import sharp from 'sharp';
import { madeProgram } from '../support/child.js';
import { PROGRAM } from '../support/cli.js';
import { eventually } from '../support/eventually.js';
import { startLockApp } from '../support/lock-app.js';
import { IMAGES } from '../support/screenshots.js';
import { openBrowser } from '../support/servers/chromium.js';
import { startRedisServer } from '../support/servers/redis-server.js';
import { Terminal } from '../support/terminal.js';

const XTERM = fileURLToPath(new URL('../../node_modules/@xterm/xterm/', import.meta.url));
const DEMO = madeProgram('dist-sample/demo/main.js');

let browser: Browser;
beforeAll(async () => {
  browser = await openBrowser();
}, 240_000);
afterAll(() => browser.close());

/** How long (ms) the last frame of a film stands still, and any other at most. */
const [LAST, LONGEST] = [8_000, 1_500];
/** What comes within so short a time (ms) is one frame. */
const SHORTEST = 150;

interface Screen extends AsyncDisposable {
  readonly page: Page;
  /** Draws what a program sends next. */
  write(text: string): Promise<void>;
  /** What stands on it, cut below the last line. */
  cut(): Promise<string>;
}

/** An xterm.js. */
async function openScreen(columns: number): Promise<Screen> {
  const page = await browser.newPage({ deviceScaleFactor: 2, viewport: { width: 1_400, height: 1_400 } });
  await page.addStyleTag({ path: `${XTERM}css/xterm.css` });
  await page.addScriptTag({ path: `${XTERM}lib/xterm.js` });
  await page.evaluate(`(() => {
    const terminal = new Terminal({ cols: ${columns}, rows: 60, fontFamily: 'DejaVu Sans Mono, monospace', fontSize: 13, theme: { background: '#1b1f24' } });
    const frame = document.body.appendChild(document.createElement('div'));
    frame.id = 'frame';
    frame.style = 'display: inline-block; padding: 16px; background: #1b1f24';
    terminal.open(frame);
    window.terminal = terminal;
  })()`);
  return {
    page,
    write: (text) => page.evaluate(`new Promise((written) => terminal.write(${JSON.stringify(text)}, written))`),
    cut: () =>
      page.evaluate(`(async () => {
        const { active } = terminal.buffer;
        const lines = Array.from({ length: active.cursorY + 1 }, (_, row) => active.getLine(row).translateToString(true));
        terminal.resize(${columns}, lines.length);
        await new Promise((drawn) => setTimeout(drawn, 200));
        return lines.join('\\n');
      })()`),
    [Symbol.asyncDispose]: () => page.close(),
  };
}

/** Draws what a program sent to its terminal, and answers the text on the screen. */
async function picture(sent: string, columns: number, name: string): Promise<string> {
  await using screen = await openScreen(columns);
  await screen.write(`${sent.trimEnd()}\u001b[?25l`);
  const text = await screen.cut();
  if (IMAGES) await screen.page.locator('#frame').screenshot({ path: `${IMAGES}${name}.png` });
  return text;
}

/** Draws what came at the pace at which it came, as a picture that plays once and ends as `picture` draws it. */
async function film(beginning: string, pieces: Terminal['pieces'], columns: number, name: string): Promise<void> {
  await using screen = await openScreen(columns);
  const all = [beginning, ...pieces.map(({ text }) => text)].join('').trimEnd();
  await screen.write(`${all}\u001b[?25l`);
  await screen.cut();
  await screen.write('\u001bc\u001b[?25l');
  const [frames, delays]: [Buffer[], number[]] = [[], []];
  const shoot = async (delay: number) => {
    frames.push(await screen.page.locator('#frame').screenshot({ scale: 'css' }));
    delays.push(Math.round(Math.min(delay, LONGEST)));
  };
  await screen.write(beginning);
  for (const [index, { at, text }] of pieces.entries()) {
    const next = pieces[index + 1]?.at;
    await screen.write(next === undefined ? text.trimEnd() : text);
    if (next !== undefined && next - at >= SHORTEST) await shoot(next - at);
  }
  await shoot(LONGEST);
  delays[delays.length - 1] = LAST;
  await sharp(frames, { join: { animated: true } })
    .gif({ loop: 1, delay: delays, colours: 32 })
    .toFile(`${IMAGES}${name}.gif`);
}

it('shows the demo', async () => {
  const options = ['--strategy', 'none,lock,fenced', '--no-cache-reads', '--no-primitives'];
  const terminal = Terminal.start([process.execPath, DEMO, ...options], {
    columns: 130,
    env: { REDIS_URL: '', DATABASE_URL: '' },
  });
  expect(await terminal.ended).toBe(0);
  const beginning = '$ npm run demo\r\n\r\n';
  const text = await picture(`${beginning}${terminal.shown}`, 130, 'terminal-demo');
  if (IMAGES) await film(beginning, terminal.pieces, 130, 'terminal-demo');
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
