import { spawn } from 'node:child_process';
import { hostname } from 'node:os';
import getPort from 'get-port';
import { Redis } from 'ioredis';
import { type CacheKeyInfo, CacheService } from 'nest-redis-lock';
import { cli, cliJson, PROGRAM } from '../support/cli.js';
import { eventually } from '../support/eventually.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';
import { Terminal } from '../support/terminal.js';

describe('its commands', () => {
  let server: RedisServer;
  let app: LockApp;
  const shop = (...args: string[]) => [...args, '--redis', server.url, '--prefix', 'shop'];

  beforeAll(async () => {
    server = await startRedisServer();
    app = await startLockApp({ redis: server.url, prefix: 'shop' });
  });
  afterAll(async () => {
    await app.close();
    await server.stop();
  });

  interface Listed {
    readonly locks: readonly Record<string, unknown>[];
    readonly cursor: string | null;
  }

  async function listed(...args: string[]): Promise<{ code: number | null; value: Listed }> {
    const { code, value } = await cliJson(shop('list', ...args));
    return { code, value: value as Listed };
  }

  const HOLD = { ttl: '5m', renew: false } as const;

  describe('list', () => {
    it('shows a key of another type in its row', async () => {
      await using lock = await app.locks.acquire('strange:1', HOLD);
      const admin = new Redis(server.url);
      await admin.rpush('shop:lock:{strange:2}', 'x');
      const { code, value } = await listed('strange:*');
      expect(code).toBe(0);
      const rows = value.locks.toSorted((a, b) => String(a['name']).localeCompare(String(b['name'])));
      expect(rows).toEqual([
        expect.objectContaining({ name: 'strange:1', owner: lock.owner }),
        expect.objectContaining({ name: 'strange:2', error: expect.stringContaining('WRONGTYPE') }),
      ]);
      const { code: shown, out } = await cli(shop('list', 'strange:*'));
      expect(shown).toBe(0);
      expect(out).toMatch(/^strange:1 /m);
      expect(out).toMatch(/^strange:2 .*WRONGTYPE/m);
      await admin.del('shop:lock:{strange:2}');
      admin.disconnect();
    });

    it('cuts a long name in the table, so that it does not widen the other rows, and has all of it in JSON', async () => {
      const name = `long:${'x'.repeat(4_000)}`;
      const locks = [await app.locks.acquire(name, HOLD), await app.locks.acquire('long:1', HOLD)];
      const { out } = await cli(shop('list', 'long:*'));
      expect(out).toMatch(/^long:x{54}… /m);
      for (const line of out.split('\n')) expect(line.length).toBeLessThan(300);
      const { value } = await listed('long:*');
      expect(value.locks.map((lock) => lock['name'])).toEqual(expect.arrayContaining(['long:1', name]));
      for (const lock of locks) await lock.release();
    });

    it('shows the holder of each lock that matches, its host, process and token', async () => {
      await using lock = await app.locks.acquire('order:7', HOLD);
      const other = await app.locks.acquire('stock:1', HOLD);
      const waiting = app.locks.acquire('order:7', { wait: '1m' });
      const foreign = new Redis(server.url);
      await foreign.set('shop:lock:{order:8}', 'a go service');
      await eventually(async () => (await app.locks.inspect('order:7'))?.waiting === 1);

      const before = Date.now();
      const { code, value } = await listed('order:*');
      expect(code).toBe(0);
      expect(value.cursor).toBeNull();
      const [ours, theirs] = value.locks.toSorted((a, b) => String(a['name']).localeCompare(String(b['name'])));
      expect(ours).toMatchObject({
        name: 'order:7',
        owner: lock.owner,
        label: `${hostname()}:${process.pid}`,
        host: hostname(),
        pid: process.pid,
        waiting: expect.any(Number),
      });
      expect(Math.abs(Number(ours?.['fencingToken']) - lock.fencingToken)).toBeLessThan(100);
      expect(ours?.['ttl']).toBeGreaterThan(200_000);
      expect(Math.abs(Date.parse(String(ours?.['since'])) - before)).toBeLessThan(60_000);
      const foreigner = { name: 'order:8', owner: 'a go service', ttl: null, fencingToken: null };
      expect(theirs).toEqual({ ...foreigner, waiting: 0, waiters: [] });

      const table = await cli(shop('list', 'order:*'));
      expect(table).toMatchObject({ code: 0, err: '' });
      const [heading, ...lines] = table.out.trimEnd().split('\n');
      expect(heading?.split(/ {2,}/).filter(Boolean)).toEqual([
        'name',
        'label',
        'host',
        'pid',
        'held for',
        'ttl left',
        'token',
        'waiting',
      ]);
      expect(lines).toHaveLength(2);
      expect(lines.join('\n')).toMatch(new RegExp(`order:7 .*${hostname()} +${process.pid} `));
      expect(lines.join('\n')).toMatch(/order:8 +a go service +- +- +- +never +- +0/);
      await foreign.del('shop:lock:{order:8}');
      foreign.disconnect();
      await Promise.all([lock.release(), other.release()]);
      await (await waiting).release();
    });

    it('goes on at a cursor, and finds each lock once', async () => {
      const names = Array.from({ length: 30 }, (_, index) => `page:${index}`);
      const locks = await Promise.all(names.map((name) => app.locks.acquire(name, HOLD)));
      const found: unknown[] = [];
      const page = async (more: readonly string[]): Promise<string | null> => {
        const { value } = await listed('page:*', '--limit', '20', ...more);
        found.push(...value.locks.map((lock) => lock['name']));
        return value.cursor;
      };
      let cursor = await page([]);
      expect(cursor).not.toBeNull();
      while (cursor !== null) cursor = await page(['--cursor', cursor]);
      expect(new Set(found)).toEqual(new Set(names));
      await Promise.all(locks.map((lock) => lock.release()));
    });

    it('says that there is none, takes the URL from the environment, and exits with 0', async () => {
      const { out, code } = await cli(['list', 'none:*', '--prefix', 'shop'], { REDIS_URL: server.url });
      expect({ out, code }).toEqual({ out: 'Nobody holds a lock that matches "none:*"\n', code: 0 });
    });

    it('shows control characters of a name as text', async () => {
      const lock = await app.locks.acquire('evil\u001b[2J\nname', HOLD);
      const { out } = await cli(shop('list', 'evil*'));
      expect(out).toMatch('evil\\u001b[2J\\nname');
      expect(out).not.toMatch('\u001b');
      await lock.release();
    });
  });

  describe('inspect and release', () => {
    it('show one lock, take it from its holder, and say from whom', async () => {
      const lock = await app.locks.acquire('a b/c', HOLD);
      const shown = await cli(shop('inspect', 'a b/c'));
      expect(shown).toMatchObject({ code: 0, err: '' });
      expect(shown.out).toMatch(new RegExp(`owner +${lock.owner}`));
      const taken = await cli(shop('release', 'a b/c'));
      const holder = `${hostname()}:${process.pid} (owner ${lock.owner}, fencing token ${lock.fencingToken})`;
      expect(taken).toEqual({ code: 0, err: '', out: `Took "a b/c" from ${holder}\n` });
      expect(await app.locks.inspect('a b/c')).toBeNull();
      await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    });

    it('answer the same as JSON', async () => {
      const lock = await app.locks.acquire('json', HOLD);
      const shown = await cliJson(shop('inspect', 'json'));
      expect(shown).toMatchObject({ code: 0, value: { name: 'json', owner: lock.owner, pid: process.pid } });
      const taken = await cliJson(shop('release', 'json', '--yes'));
      expect(taken).toMatchObject({ code: 0, value: { name: 'json', released: true, from: { owner: lock.owner } } });
      await lock.release().catch(() => {});
    });

    it('show who waits, the next one first', async () => {
      const lock = await app.locks.acquire('queue', HOLD);
      expect((await cli(shop('inspect', 'queue'))).out).toMatch(/^waiters +- *$/m);
      await using next = await startLockApp({ redis: server.url, prefix: 'shop', label: 'next\nweb' });
      await using last = await startLockApp({ redis: server.url, prefix: 'shop' });
      const waits: Promise<{ release(): Promise<void> }>[] = [];
      for (const [index, { locks }] of [next, last].entries()) {
        waits.push(locks.acquire('queue', { wait: '1m' }));
        await eventually(async () => (await app.locks.inspect('queue'))?.waiters?.length === index + 1);
      }
      const label = `${hostname()}:${process.pid}`;
      expect((await cli(shop('inspect', 'queue'))).out).toMatch(new RegExp(`^waiters +next\\\\nweb, ${label} *$`, 'm'));
      const waiter = (name: string) => ({ label: name, owner: expect.any(String), mode: 'write' });
      expect((await cliJson(shop('inspect', 'queue'))).value).toMatchObject({
        waiters: [waiter('next\nweb'), waiter(label)],
      });
      await lock.release();
      for (const each of waits) await (await each).release();
    });

    it('exit with 1 for a name that nobody holds', async () => {
      for (const command of ['inspect', 'release']) {
        expect(await cli(shop(command, 'free'))).toEqual({ code: 1, err: '', out: 'Nobody holds "free"\n' });
      }
      expect(await cliJson(shop('inspect', 'free'))).toEqual({ code: 1, value: { name: 'free', held: false } });
    });
  });

  describe('cache', () => {
    const cache = () => app.app.get(CacheService);

    it('inspect shows what is stored under a key', async () => {
      await cache().set('product:7', { price: 12 }, { ttl: '5m', tags: ['products'] });
      const { code, value } = await cliJson(shop('cache', 'inspect', 'product:7'));
      expect(code).toBe(0);
      expect(value).toMatchObject({ key: 'product:7', state: 'fresh', tags: ['products'], barrier: false });
      expect((value as CacheKeyInfo).freshFor).toBeGreaterThan(100_000);
      const table = await cli(shop('cache', 'inspect', 'product:7'));
      expect(table.out).toMatch(/state +fresh/);
      expect(table.out).toMatch(/tags +products/);
      expect(await cli(shop('cache', 'inspect', 'nothing'))).toMatchObject({ code: 1, err: '' });
    });

    it('invalidate deletes a value, and all values with a tag', async () => {
      await cache().set('one', 1, { ttl: '5m' });
      await cache().set('two', 2, { ttl: '5m', tags: ['numbers'] });
      expect(await cli(shop('cache', 'invalidate', 'one'))).toMatchObject({ code: 0, out: 'Invalidated "one"\n' });
      expect(await cache().get('one')).toBeUndefined();
      expect((await cli(shop('cache', 'invalidate', 'one'))).out).toBe(
        'Invalidated "one", under which nothing was stored\n',
      );
      const byTag = await cliJson(shop('cache', 'invalidate', '--tag', 'numbers', '--tag', 'others'));
      expect(byTag).toEqual({ code: 0, value: { tags: ['numbers', 'others'] } });
      expect(await cache().get('two')).toBeUndefined();
    });
  });
});

describe('on a terminal', () => {
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
});

describe('its failures', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  const COMMANDS = [['list'], ['release', 'x', '--yes'], ['cache', 'inspect', 'x'], ['watch']];

  describe('a server that does not serve', () => {
    it.each(COMMANDS)(
      '%s %s names the server, the cause and the remedy in one line, and exits with 3',
      async (...args) => {
        const port = await getPort();
        const { code, out, err } = await cli([...args, '--redis', `redis://127.0.0.1:${port}`]);
        expect({ code, out }).toEqual({ code: 3, out: '' });
        expect(err).toMatch(new RegExp(`^nest-redis-lock: .*127\\.0\\.0\\.1:${port}.*ECONNREFUSED.*start Redis.*\n$`));
      },
    );

    it('may refuse the password', async () => {
      const admin = new Redis(server.url);
      await admin.call('ACL', 'SETUSER', 'operator', 'on', '>right', '~*', '&*', '+@all');
      admin.disconnect();
      const { host, searchParams: _none } = new URL(server.url);
      const { code, err } = await cli(['list', '--redis', `redis://operator:wrong@${host}`]);
      expect(code).toBe(3);
      expect(err).toMatch(/^nest-redis-lock: .*WRONGPASS.*correct username and password.*\n$/);
      expect(err).not.toMatch('wrong@');
      expect(await cli(['list', '--redis', `redis://operator:right@${host}`])).toMatchObject({ code: 0, err: '' });
    });

    it('may have a host name that does not exist', async () => {
      const { code, err } = await cli(['list', '--redis', 'redis://nowhere.invalid:6379']);
      expect(code).toBe(3);
      expect(err).toMatch(/^nest-redis-lock: .*nowhere\.invalid.*host name.*\n$/);
    });
  });

  describe('wrong usage exits with 2', () => {
    it.each([
      { args: ['list', '--colour'], says: "unknown option '--colour'" },
      { args: ['lits'], says: "unknown command 'lits'" },
      { args: ['inspect'], says: "missing required argument 'name'" },
      { args: ['list', '--limit', '0'], says: 'from 1 to 10000' },
      { args: ['watch', '--interval', 'soon'], says: '100 ms or more' },
      { args: ['list', '--backend', 'sqlite'], says: 'Allowed choices are redis, postgres' },
      { args: ['list', '--backend', 'etcd'], says: 'needs --url' },
      { args: ['list', '--url', 'redis://localhost'], says: 'give --redis' },
      { args: ['cache', 'invalidate'], says: 'Give a key, or --tag' },
      { args: ['cache', 'inspect', 'x', '--backend', 'mysql', '--url', 'mysql://x'], says: 'The cache is in Redis' },
      { args: ['list', '--prefix', 'a{b}'], says: 'prefix' },
      { args: ['list', '--redis', 'http://localhost'], says: 'redis' },
      { args: ['list', '--cluster', '--redis', 'localhost:7000'], says: 'give a URL such as redis://localhost:6379' },
      { args: ['list', '--cluster', '--redis', 'http://localhost'], says: 'give a URL such as redis://localhost:6379' },
      { args: ['list', '--cluster', '--redis', 'redis://:secret@localhost/2'], says: 'a Cluster has database 0 alone' },
      { args: ['list', '--cluster', '--redis', 'redis:/:secret@localhost'], says: '--redis is "..."; give a URL such' },
      { args: ['list', '--cluster', '--redis', 'redis://:secret%zz@localhost'], says: 'is a URL that cannot be read' },
      { args: ['list', '--redis', 'redis:/:secret@localhost'], says: 'Option "redis" is "..."; give a URL' },
      { args: ['list', '--backend', 'etcd', '--url', 'root:secret@h:1'], says: 'Option "endpoints" is "..."; give' },
    ])('$args', async ({ args, says }) => {
      const { code, out, err } = await cli(args, { REDIS_URL: server.url });
      expect({ code, out }).toEqual({ code: 2, out: '' });
      expect(err).toContain(says);
      expect(err).not.toContain('secret');
      expect(err).not.toMatch(/^ +at /m);
    });

    it('also for a cursor that no list printed', async () => {
      const { code, err } = await cli(['list', '--cursor', 'x'], { REDIS_URL: server.url });
      expect(code).toBe(2);
      expect(err).toMatch('cursor');
    });
  });

  it('shows its help and its version, and exits with 0', async () => {
    const help = await cli(['list', '--help']);
    expect(help).toMatchObject({ code: 0, err: '' });
    for (const option of ['--cursor', '--limit', '--redis', '--prefix', '--json']) expect(help.out).toMatch(option);
    expect(await cli(['--version'])).toMatchObject({ code: 0, out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
  });
});
