import { spawn } from 'node:child_process';
import { PROGRAM } from '../../support/cli.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { Terminal } from '../../support/terminal.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

let server: RedisServer;
let app: LockApp;
beforeAll(async () => {
  server = await startRedisServer();
  app = await startLockApp({ redis: server.url });
});
afterAll(async () => {
  await app.close();
  await server.stop();
});

const HOLD = { ttl: '5m', renew: false } as const;
const LEAVES = '\u001b[?25h\u001b[?1049l';

function onTerminal(...args: string[]): Terminal {
  return Terminal.start([process.execPath, PROGRAM, '--redis', server.url, ...args]);
}

describe('watch', () => {
  it('draws the locks again and again, and leaves the terminal as it was on Ctrl-C', async () => {
    const first = await app.locks.acquire('watched:1', HOLD);
    const terminal = onTerminal('watch', 'watched:*', '--interval', '200ms');
    await terminal.shows('watched:1');
    expect(terminal.shown.startsWith('\u001b[?1049h\u001b[?25l')).toBe(true);
    const second = await app.locks.acquire('watched:2', HOLD);
    await terminal.shows('watched:2');
    expect(terminal.shown).not.toMatch(LEAVES);
    terminal.type('\u0003');
    expect(await terminal.ended).toBe(0);
    expect(terminal.shown.replace('^C', '').endsWith(LEAVES)).toBe(true);
    await Promise.all([first.release(), second.release()]);
  });

  it('goes on while the server is away, and says so', async () => {
    await using redis = await startRedisServer();
    const terminal = onTerminal('watch', '--interval', '200ms', '--redis', redis.url);
    await terminal.shows('locks that match "*": 0');
    await redis.stop();
    await terminal.shows('As of the last answer: ');
    terminal.type('\u0003');
    expect(await terminal.ended).toBe(0);
  });

  it('prints a line of JSON each time with --json', async () => {
    const lock = await app.locks.acquire('lines:1', HOLD);
    const child = spawn(
      process.execPath,
      [PROGRAM, 'watch', 'lines:*', '--json', '--interval', '200ms', '--redis', server.url],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    let out = '';
    child.stdout.on('data', (data: Buffer) => (out += data.toString()));
    await eventually(() => out.split('\n').length > 3, { within: 60_000 });
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
    const lines = out.trimEnd().split('\n');
    const pages = lines.map((line) => JSON.parse(line) as { at: string; locks: { name: string }[] });
    expect(pages.every(({ locks }) => locks.length === 1 && locks[0]?.name === 'lines:1')).toBe(true);
    expect(new Set(pages.map(({ at }) => at)).size).toBe(pages.length);
    await lock.release();
  });
});

describe('release on a terminal', () => {
  it.each([
    { answer: 'n\r', code: 1, held: true },
    { answer: '\u0004', code: 1, held: true },
    { answer: 'y\r', code: 0, held: false },
  ])('asks first, and takes the lock only after "y"', async ({ answer, code, held }) => {
    const lock = await app.locks.acquire('asked', HOLD);
    const terminal = onTerminal('release', 'asked');
    await terminal.shows('Take "asked" from ');
    expect(await app.locks.isLocked('asked')).toBe(true);
    terminal.type(answer);
    expect(await terminal.ended).toBe(code);
    expect(await app.locks.isLocked('asked')).toBe(held);
    await lock.release().catch(() => {});
  });

  it('does not ask with --yes', async () => {
    const lock = await app.locks.acquire('sure', HOLD);
    const terminal = onTerminal('release', 'sure', '--yes');
    expect(await terminal.ended).toBe(0);
    expect(terminal.shown).toMatch('Took "sure" from ');
    await lock.release().catch(() => {});
  });
});
