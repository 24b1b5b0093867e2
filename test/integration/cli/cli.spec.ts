import { hostname } from 'node:os';
import { Redis } from 'ioredis';
import { CacheService, type CacheKeyInfo } from 'nest-redis-lock';
import { cli, cliJson } from '../../support/cli.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

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
