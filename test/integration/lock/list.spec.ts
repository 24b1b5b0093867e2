import { createCluster } from '@redis/client';
import { Cluster, Redis } from 'ioredis';
import { memory, LockConfigError, type LockService, type RedisLockModuleOptions } from 'nest-redis-lock';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startRedisCluster, type RedisCluster } from '../../support/servers/redis-cluster.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

let server: RedisServer;
let cluster: RedisCluster;
beforeAll(async () => {
  [server, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
});
afterAll(() => Promise.all([server.stop(), cluster.stop()]));

/** The names on all pages, sorted, each once. */
async function listed(locks: LockService, pattern?: string, limit = 4): Promise<string[]> {
  const keys = new Set<string>();
  let cursor: string | undefined;
  do {
    const page = await locks.list(pattern, { cursor, limit });
    for (const { key } of page.locks) keys.add(key);
    ({ cursor } = page);
  } while (cursor !== undefined);
  return [...keys].toSorted();
}

const ODD = ['}x', '}', '%7D', '%257D', '%', 'a}b', 'a{b', '{t}:a', 'Müller*', '[a]', 'back\\slash', 'a b', 'x}:queue'];

const shared = memory();
const places: [string, () => Promise<[RedisLockModuleOptions, end?: () => void]>][] = [
  ['Redis', async () => [{ redis: server.url }]],
  ['Redis with a prefix', async () => [{ redis: server.url, prefix: 'sh*p' }]],
  [
    'Redis with a client that has a keyPrefix',
    async () => {
      const client = new Redis(server.url, { keyPrefix: 'client[1]:' });
      return [{ redis: client }, () => client.disconnect()];
    },
  ],
  [
    'a Cluster',
    async () => {
      const client = new Cluster(cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port })));
      return [{ redis: client, prefix: 'ioredis' }, () => client.disconnect()];
    },
  ],
  [
    'a Cluster by node-redis',
    async () => {
      const client = createCluster({ rootNodes: cluster.servers.map(({ url }) => ({ url })) });
      client.on('error', () => {});
      await client.connect();
      return [{ redis: client, prefix: 'node-redis' }, () => client.destroy()];
    },
  ],
  ['memory', async () => [{ backend: shared }]],
  ['memory with a prefix', async () => [{ backend: shared, prefix: 'shop' }]],
];

describe.each(places)('the locks on %s', (place, open) => {
  let app: LockApp;
  let locks: LockService;
  let end: (() => void) | undefined;
  beforeAll(async () => {
    const [options, afterwards] = await open();
    app = await startLockApp({ ...options, label: 'checkout' });
    [locks, end] = [app.locks, afterwards];
  });
  afterAll(async () => {
    await app.close();
    end?.();
  });

  it('are listed over several pages, each with what inspect says', async () => {
    const names = Array.from({ length: 25 }, (_, index) => `order:${index}`).toSorted();
    const held = await Promise.all(names.map((name) => locks.acquire(name)));
    const other = await locks.acquire('product:1');
    expect(await listed(locks, 'order:*')).toEqual(names);
    expect(await listed(locks, 'order:1?')).toEqual(names.filter((name) => /:1.$/.test(name)));
    expect(await listed(locks)).toEqual([...names, 'product:1']);
    const { locks: all } = await locks.list('product:*', { limit: 10_000 });
    expect(all).toEqual([
      {
        key: 'product:1',
        owner: other.owner,
        label: 'checkout',
        ttl: expect.any(Number),
        fencingToken: expect.any(Number),
        waiting: 0,
        ...(!place.startsWith('memory') && { waiters: [] }),
      },
    ]);
    await Promise.all([...held, other].map((lock) => lock.release()));
    expect(await listed(locks)).toEqual([]);
  });

  it('are found whatever their names', async () => {
    const held = await Promise.all(ODD.map((name) => locks.acquire(name)));
    expect(await listed(locks)).toEqual(ODD.toSorted());
    for (const name of ODD) {
      const literally = name.replace(/[\\*?[\]]/g, '\\$&');
      expect(await listed(locks, literally)).toEqual([name]);
      expect(await listed(locks, `?${literally.replace(/^\\?./, '')}`)).toContain(name);
    }
    await Promise.all(held.map((lock) => lock.release()));
  });
});

it('are those of all processes and of foreign clients, and none of another prefix', async () => {
  await using one = await startLockApp({ redis: server.url, prefix: 'one' });
  await using same = await startLockApp({ redis: server.url, prefix: 'one' });
  await using none = await startLockApp({ redis: server.url });
  const plain = new Redis(server.url);
  await plain.set('one:lock:{foreign}', 'somebody', 'PX', 60_000);
  const first = await one.locks.acquire('mine');
  const yours = await same.locks.acquire('yours');
  const elsewhere = await none.locks.acquire('elsewhere');
  const waiting = same.locks.acquire('mine', { wait: '20s' });
  expect(await listed(one.locks)).toEqual(['foreign', 'mine', 'yours']);
  expect(await listed(none.locks)).toEqual(['elsewhere']);
  await first.release();
  for (const lock of [await waiting, yours, elsewhere]) await lock.release();
  plain.disconnect();
});

it('end up on a page although most of the keys are of other kinds', async () => {
  await using app = await startLockApp({ redis: server.url, prefix: 'sparse' });
  const plain = new Redis(server.url);
  await plain.mset(Object.fromEntries(Array.from({ length: 3_000 }, (_, index) => [`noise:${index}`, 'x'])));
  await using _ = await app.locks.acquire('needle');
  expect(await listed(app.locks, 'needle', 10)).toEqual(['needle']);
  plain.disconnect();
});

describe('refuses', () => {
  const bad: [string, string | undefined, object, RegExp][] = [
    ['an empty pattern', '', {}, /"pattern" is ""; give a glob/],
    ['a pattern that is no text', 7 as never, {}, /"pattern" is 7; give a glob/],
    ['half a page', '*', { limit: 0.5 }, /"limit" is 0\.5; give a whole number/],
    ['too long a page', '*', { limit: 10_001 }, /"limit" is 10001; give a whole number up to 10000/],
    ['a cursor that is no text', '*', { cursor: 7 }, /"cursor" is 7; give the cursor of the page before/],
    ['an unknown option', '*', { count: 7 }, /"count"/],
    ['an unknown backend', '*', { backend: 'other' }, /"backend" is "other"/],
  ];
  it.each(bad)('%s', async (_what, pattern, options, message) => {
    await using app = await startLockApp({ backend: memory() });
    const refused = app.locks.list(pattern, options);
    await expect(refused).rejects.toBeInstanceOf(LockConfigError);
    await expect(refused).rejects.toThrow(message);
  });

  it('a cursor that it did not return', async () => {
    await using app = await startLockApp({ redis: server.url });
    const refused = app.locks.list('*', { cursor: 'soon' });
    await expect(refused).rejects.toBeInstanceOf(LockConfigError);
    await expect(refused).rejects.toThrow(/"cursor" is "soon"; give the cursor of the page before/);
  });
});
