import {
  CacheService,
  LockBackendError,
  memory,
  type AcquireAnswer,
  type CacheStoreProvider,
  type LockBackend,
} from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { startLockApp } from '../support/lock-app.js';

/** The memory backend with some of its calls replaced. */
function backendWith(replace: (inner: LockBackend) => Partial<LockBackend>): LockBackend {
  const inner = memory();
  const calls: LockBackend = {
    name: 'custom',
    capabilities: inner.capabilities,
    acquire: (request) => inner.acquire(request),
    renew: (requests) => inner.renew(requests),
    release: (request) => inner.release(request),
    inspect: (request) => inner.inspect(request),
    forceRelease: (request) => inner.forceRelease(request),
    ping: () => inner.ping(),
    close: () => inner.close(),
  };
  return { ...calls, ...replace(inner) };
}

it('frees what is granted after its caller gave up, also when the release overtook the grant', async () => {
  const arrive = new Gate();
  const released: string[] = [];
  const backend = backendWith((inner) => ({
    acquire: async (request): Promise<AcquireAnswer> => {
      if (request.names[0] === 'late') await arrive.opened;
      return inner.acquire(request);
    },
    release: (request) => {
      released.push(request.ticket);
      return inner.release(request);
    },
  }));
  await using app = await startLockApp({ backend, commandTimeout: 100 });
  await expect(app.locks.tryAcquire('late')).rejects.toBeInstanceOf(LockBackendError);
  expect(released).toHaveLength(1);
  arrive.open();
  await eventually(() => released.length === 2);
  expect(new Set(released).size).toBe(1);
  expect(await app.locks.isLocked('late')).toBe(false);
});

it('never uses a ticket twice', async () => {
  const tickets: string[] = [];
  const backend = backendWith((inner) => ({
    acquire: (request) => {
      tickets.push(request.ticket);
      return inner.acquire(request);
    },
  }));
  await using app = await startLockApp({ backend });
  const held = await app.locks.acquire('tickets');
  await expect(app.locks.acquire('tickets', { wait: 200 })).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
  await held.release();
  expect(tickets.length).toBeGreaterThan(2);
  expect(new Set(tickets).size).toBe(tickets.length);
});

it('explains the errors of a backend, with their cause', async () => {
  const cause = new Error('disk on fire');
  const backend = backendWith(() => ({ acquire: () => Promise.reject(cause) }));
  await using app = await startLockApp({ backend });
  const error: unknown = await app.locks.tryAcquire('fire').catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(LockBackendError);
  expect(error).toMatchObject({ cause, keys: ['fire'], message: expect.stringMatching(/custom.*disk on fire/) });
});

it('is refused several names when it cannot take them in one step', async () => {
  const backend = backendWith((inner) => ({ capabilities: { ...inner.capabilities, severalKeys: false } }));
  await using app = await startLockApp({ backend });
  await expect(app.locks.acquire(['a', 'b'])).rejects.toMatchObject({ code: 'LOCK_CONFIG' });
});

it('is retried through its errors until the wait ends', async () => {
  let tries = 0;
  const backend = backendWith((inner) => ({
    acquire: (request) => {
      tries += 1;
      return tries < 4 ? Promise.reject(new Error('not yet')) : inner.acquire(request);
    },
  }));
  await using app = await startLockApp({ backend });
  const lock = await app.locks.acquire('through', { wait: 5_000 });
  expect(tries).toBe(4);
  await lock.release();
});

it('that throws instead of rejecting is asked again to release', async () => {
  let releases = 0;
  const backend = backendWith((inner) => ({
    release: (request) => {
      releases += 1;
      if (releases === 1) throw new Error('not now');
      return inner.release(request);
    },
  }));
  await using app = await startLockApp({ backend });
  await (await app.locks.acquire('thrown')).release();
  await eventually(async () => !(await app.locks.isLocked('thrown')));
  expect(releases).toBe(2);
});

it('keeps the cache, too, where it provides a store for it', async () => {
  const inner = memory() as LockBackend & CacheStoreProvider;
  const opened: (string | undefined)[] = [];
  const provider: CacheStoreProvider = {
    openCacheStore: (prefix) => {
      opened.push(prefix);
      return inner.openCacheStore(prefix);
    },
  };
  const backend = { ...backendWith(() => ({})), ...provider };
  await using app = await startLockApp({ backend, prefix: 'shop' });
  const cache = app.app.get(CacheService);
  await cache.set('price', 3, { ttl: '1m' });
  expect(await cache.get('price')).toBe(3);
  expect(opened).toEqual(['shop']);
});
