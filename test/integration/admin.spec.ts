import 'reflect-metadata';
import { type CanActivate, type ExecutionContext, type INestApplication, Injectable, Module } from '@nestjs/common';
import { type AbstractHttpAdapter, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import getPort from 'get-port';
import { CacheService, LockConfigError, LockService, memory, RedisLockModule } from 'nest-redis-lock';
import { LockAdminModule, type LockAdminOptions } from 'nest-redis-lock/admin';

@Injectable()
class Administrators {
  readonly names = ['ada'];
}

@Module({ providers: [Administrators], exports: [Administrators] })
class AdministratorsModule {}

@Injectable()
class AdminGuard implements CanActivate {
  constructor(private readonly administrators: Administrators) {}

  canActivate(context: ExecutionContext): boolean {
    const { headers } = context.switchToHttp().getRequest<{ headers: Record<string, string> }>();
    return this.administrators.names.includes(headers['x-user'] ?? '');
  }
}

class Root {}

interface Answer {
  readonly status: number;
  readonly body: unknown;
}

const HOLD = { ttl: '5m', renew: false } as const;

describe.each<[string, () => AbstractHttpAdapter]>([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
])('on %s', (_, adapter) => {
  let app: INestApplication;
  let locks: LockService;
  let cache: CacheService;
  let url: string;

  beforeAll(async () => {
    const root = {
      module: Root,
      imports: [
        RedisLockModule.forRoot({ backend: memory(), backends: { spare: memory() } }),
        LockAdminModule.register({ guards: [AdminGuard], path: 'ops/locks', imports: [AdministratorsModule] }),
      ],
    };
    app = await NestFactory.create(root, adapter(), { logger: false, abortOnError: false });
    await app.listen(0, '127.0.0.1');
    url = `${await app.getUrl()}/ops/locks`;
    locks = app.get(LockService);
    cache = app.get(CacheService);
  });
  afterAll(() => app.close());

  async function ask(path: string, method = 'GET', user = 'ada'): Promise<Answer> {
    const answer = await fetch(url + path, { method, headers: { 'x-user': user } });
    return { status: answer.status, body: await answer.json() };
  }

  it('lets in those whom the guard lets in', async () => {
    const routes = [
      ['GET', ''],
      ['GET', '/lock?name=x'],
      ['DELETE', '/lock?name=x'],
    ] as const;
    const ofCache = [
      ['GET', '/cache?key=x'],
      ['DELETE', '/cache?key=x'],
      ['DELETE', '/cache?tag=x'],
    ] as const;
    await cache.set('x', 1, { ttl: '5m', tags: ['x'] });
    const lock = await locks.acquire('x', HOLD);
    for (const [method, path] of [...routes, ...ofCache]) {
      expect(await ask(path, method, 'eve')).toMatchObject({ status: 403 });
    }
    expect(lock.held).toBe(true);
    expect(await cache.get('x')).toBe(1);
    await lock.release();
  });

  it('lists the locks, page by page', async () => {
    const held = await Promise.all(['page:1', 'page:2', 'other'].map((name) => locks.acquire(name, HOLD)));
    const found: string[] = [];
    let path = '?pattern=page:*&limit=1';
    for (let pages = 0; path !== '' && pages < 20; pages++) {
      const { status, body } = await ask(path);
      expect(status).toBe(200);
      const page = body as { locks: { name: string; ttl: number }[]; cursor: string | null };
      for (const { ttl } of page.locks) expect(ttl).toBeGreaterThan(100_000);
      found.push(...page.locks.map(({ name }) => name));
      path = page.cursor === null ? '' : `?pattern=page:*&limit=1&cursor=${encodeURIComponent(page.cursor)}`;
    }
    expect(found.toSorted()).toEqual(['page:1', 'page:2']);
    await Promise.all(held.map((lock) => lock.release()));
  });

  it('shows a lock, takes it away, and then answers 404', async () => {
    const lock = await locks.acquire('a/b c', HOLD);
    const path = '/lock?name=a%2Fb%20c';
    const shown = { name: 'a/b c', owner: lock.owner, fencingToken: lock.fencingToken };
    expect(await ask(path)).toMatchObject({ status: 200, body: shown });
    expect(await ask(path, 'DELETE')).toMatchObject({ status: 200, body: { released: true, from: shown } });
    expect(lock.held).toBe(false);
    for (const method of ['GET', 'DELETE']) {
      expect(await ask(path, method)).toMatchObject({ status: 404, body: { message: 'Nobody holds "a/b c"' } });
    }
    await lock.release().catch(() => {});
  });

  it('asks the backend that the request names', async () => {
    const lock = await locks.acquire('elsewhere', { ...HOLD, backend: 'spare' });
    expect(await ask('/lock?name=elsewhere')).toMatchObject({ status: 404 });
    expect(await ask('/lock?name=elsewhere&backend=spare')).toMatchObject({ status: 200 });
    expect(await ask('/lock?name=elsewhere&backend=none')).toMatchObject({ status: 400 });
    await lock.release();
  });

  it('shows and invalidates cached values', async () => {
    await cache.set('one', 1, { ttl: '5m', tags: ['numbers'] });
    const shown = { key: 'one', state: 'fresh', tags: ['numbers'] };
    expect(await ask('/cache?key=one')).toMatchObject({ status: 200, body: shown });
    expect(await ask('/cache?tag=numbers', 'DELETE')).toEqual({ status: 200, body: { tag: 'numbers' } });
    expect(await cache.get('one')).toBeUndefined();
    expect(await ask('/cache?key=one')).toMatchObject({ body: { state: 'invalidated' } });
    await cache.set('one', 1, { ttl: '5m' });
    expect(await ask('/cache?key=one', 'DELETE')).toEqual({ status: 200, body: { key: 'one', found: true } });
    expect(await ask('/cache?key=one', 'DELETE')).toEqual({ status: 200, body: { key: 'one', found: false } });
    expect(await ask('/cache?key=one')).toMatchObject({ status: 404 });
  });

  it.each([
    ['GET', '?limit=0'],
    ['GET', '?limit=many'],
    ['GET', '?limit=100000'],
    ['GET', '?patern=x'],
    ['GET', '?pattern=a&pattern=b'],
    ['GET', '?pattern='],
    ['GET', '/lock'],
    ['DELETE', '/lock'],
    ['DELETE', '/lock?name='],
    ['DELETE', '/lock?name=a&name=b'],
    ['GET', '/cache?name=a'],
    ['DELETE', '/cache'],
    ['DELETE', '/cache?key=a&tag=b'],
  ])('answers %s %s with 400', async (method, path) => {
    expect(await ask(path, method)).toMatchObject({ status: 400, body: { message: expect.any(String) } });
  });

  it('lets nobody keep the answers', async () => {
    const answer = await fetch(url, { headers: { 'x-user': 'ada' } });
    expect(answer.headers.get('cache-control')).toBe('no-store');
  });
});

it('answers 503 while Redis cannot be reached, below the path by default', async () => {
  const redis = `redis://127.0.0.1:${await getPort()}`;
  const guards = [AdminGuard];
  const imports = [
    RedisLockModule.forRoot({ redis }),
    LockAdminModule.register({ guards, imports: [AdministratorsModule] }),
  ];
  const app = await NestFactory.create({ module: Root, imports }, { logger: false, abortOnError: false });
  try {
    await app.listen(0, '127.0.0.1');
    const ask = async (path: string, method: string) =>
      (await fetch(`${await app.getUrl()}/admin/locks${path}`, { method, headers: { 'x-user': 'ada' } })).status;
    const answers = [
      ask('', 'GET'),
      ask('/lock?name=x', 'DELETE'),
      ask('/cache?key=x', 'GET'),
      ask('/cache?key=x', 'DELETE'),
    ];
    expect(await Promise.all(answers)).toEqual([503, 503, 503, 503]);
  } finally {
    await app.close();
  }
});

describe('LockAdminModule.register', () => {
  it.each<[string, unknown]>([
    ['no options', undefined],
    ['no guards', {}],
    ['an empty list of guards', { guards: [] }],
    ['a guard that is no class', { guards: [{}] }],
    ['a class that is no guard', { guards: [Root] }],
    ['one guard outside a list', { guards: AdminGuard }],
  ])('refuses %s, and says what to give', (__, options) => {
    const register = () => LockAdminModule.register(options as LockAdminOptions);
    expect(register).toThrow(LockConfigError);
    expect(register).toThrow('{ guards: [AdminGuard] }');
  });

  it('refuses an unknown option and a path that is none', () => {
    const guards = [AdminGuard];
    expect(() => LockAdminModule.register({ guards, guard: 1 } as LockAdminOptions)).toThrow('guard');
    expect(() => LockAdminModule.register({ guards, path: '' })).toThrow('path');
  });
});
