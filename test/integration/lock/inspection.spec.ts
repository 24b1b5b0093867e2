import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { createCluster } from '@redis/client';
import { Cluster, Redis } from 'ioredis';
import {
  LockBackendError,
  LockConfigError,
  LockKeyError,
  type LockService,
  memory,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { eventually } from '../../support/eventually.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { QueuePeer } from '../../support/queue-peer.js';
import { type RedisCluster, startRedisCluster } from '../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';
import { replacing } from '../../support/open-backend.js';

describe('the list of locks', () => {
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

  it('tells a name that cannot be read in its place, and lists the others', async () => {
    const admin = new Redis(server.url);
    const rights = ['~odd:lock:{a*', '~odd:lock:{check*', '~odd:lock:{protocol*', '&*', '+@all'];
    await admin.call('ACL', 'SETUSER', 'some', 'on', '>pw', ...rights);
    const connection = { host: '127.0.0.1', port: server.port, username: 'some', password: 'pw' };
    await using app = await startLockApp({ redis: connection, prefix: 'odd', cache: false, failFast: true });
    await using held = await app.locks.acquire('a:held');
    await admin.rpush('odd:lock:{a:list}', 'x');
    await admin.set('odd:lock:{a:queue}', 'foreign');
    await admin.set('odd:lock:{a:queue}:queue', 'no list');
    await admin.set('odd:lock:{b}', 'of another user');
    const { locks } = await app.locks.list('*');
    const rows = Object.fromEntries(locks.map((lock) => [lock.key, lock]));
    expect(rows['a:held']).toMatchObject({ owner: held.owner });
    expect(rows['a:held']).not.toHaveProperty('error');
    expect(rows['a:list']).toMatchObject({ owner: '', error: expect.stringContaining('WRONGTYPE') });
    expect(rows['a:queue']).toMatchObject({ error: expect.stringContaining('WRONGTYPE') });
    expect(rows['b']).toMatchObject({ error: expect.stringContaining('NOPERM') });
    await admin.del('odd:lock:{a:list}', 'odd:lock:{a:queue}', 'odd:lock:{a:queue}:queue', 'odd:lock:{b}');
    admin.disconnect();
  });

  it('rejects where the store answers no more', async () => {
    await using other = await startRedisServer();
    await using app = await startLockApp({ redis: other.url, cache: false, commandTimeout: 200, shutdownGrace: 100 });
    await app.locks.acquire('name');
    await app.locks.list('*');
    await other.stop();
    await expect(app.locks.list('*')).rejects.toBeInstanceOf(LockBackendError);
  });

  const ODD = [
    '}x',
    '}',
    '%7D',
    '%257D',
    '%',
    'a}b',
    'a{b',
    '{t}:a',
    'Müller*',
    '[a]',
    'back\\slash',
    'a b',
    'x}:queue',
  ];

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
});

it('asks for few locks of a page at once, so that the store serves others in between', async () => {
  let [underWay, most] = [0, 0];
  const backend = replacing(memory(), (store) => ({
    inspect: async (request) => {
      underWay += 1;
      most = Math.max(most, underWay);
      try {
        return await store.inspect(request);
      } finally {
        underWay -= 1;
      }
    },
  }));
  await using app = await startLockApp({ backend });
  const names = Array.from({ length: 260 }, (_, index) => `order:${index}`);
  const held = await Promise.all(names.map((name) => app.locks.acquire(name)));
  const { locks, cursor } = await app.locks.list('*', { limit: 1_000 });
  expect(locks.map(({ key }) => key)).toEqual(names.toSorted());
  expect(cursor).toBeUndefined();
  expect(most).toBeGreaterThan(1);
  expect(most).toBeLessThanOrEqual(10);
  for (const lock of held) await lock.release();
});

describe('a label', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  describe.each(['redis', 'memory'] as const)('the label of an application on %s', (kind) => {
    const shared = memory();
    const start = (label?: string, prefix?: string) =>
      startLockApp({
        ...(kind === 'redis' ? { redis: server.url } : { backend: shared }),
        ...(label !== undefined && { label }),
        ...(prefix !== undefined && { prefix }),
      });

    it('is shown for any holder, here and elsewhere', async () => {
      await using checkout = await start('checkout @ eu-1');
      await using other = await start();
      const lock = await checkout.locks.acquire('labelled');
      for (const { locks } of [checkout, other]) {
        expect(await locks.inspect('labelled')).toMatchObject({ owner: lock.owner, label: 'checkout @ eu-1' });
      }
      await expect(other.locks.release('labelled')).rejects.toThrow(`${lock.owner} (checkout @ eu-1)`);
      await expect(other.locks.release('labelled')).rejects.toBeInstanceOf(LockKeyError);
      await lock.release();
      await using _ = await other.locks.acquire('labelled');
      expect((await checkout.locks.inspect('labelled'))?.label).toBe(`${hostname()}:${process.pid}`);
    });

    it('is kept behind the prefix', async () => {
      await using one = await start('one', 'shop');
      await using two = await start('two', 'shop');
      await using _ = await one.locks.acquire('prefixed');
      expect((await two.locks.inspect('prefixed'))?.label).toBe('one');
    });
  });

  it('is absent for a foreign client, expires after a process that died, and is removed by one that closes', async () => {
    const plain = new Redis(server.url);
    await plain.set('lock:{foreign}', 'somebody:7', 'PX', 60_000);
    await plain.set('lock:{nameless}', 'somebody', 'PX', 60_000);
    {
      await using app = await startLockApp({ redis: server.url, label: 'mine' });
      expect(await app.locks.inspect('foreign')).not.toHaveProperty('label');
      expect(await app.locks.inspect('nameless')).not.toHaveProperty('label');
      await app.locks.withLock('own', async ({ owner }) => expect(await plain.get('lock:{own}')).toBe(owner));
      const [key = ''] = await plain.keys('*:label');
      expect(await plain.get(key)).toBe('mine');
      expect(await plain.pttl(key)).toBeGreaterThan(0);
    }
    expect(await plain.keys('*:label')).toEqual([]);
    plain.disconnect();
  });

  it.each([[''], [7]])('is refused when it is no text: %j', async (label) => {
    await expect(startLockApp({ backend: memory(), label: label as string })).rejects.toThrow(/"label" is .*; give/);
  });
});

describe('the queue of a lock', () => {
  let server: RedisServer;
  let cluster: RedisCluster;
  const clients: (Redis | Cluster)[] = [];
  beforeAll(async () => {
    [server, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
  });
  afterAll(async () => {
    for (const client of clients) client.disconnect();
    await Promise.all([server.stop(), cluster.stop()]);
  });

  function kept<Client extends Redis | Cluster>(client: Client): Client {
    clients.push(client);
    return client;
  }

  const places: [string, () => RedisLockModuleOptions][] = [
    ['Redis', () => ({ redis: server.url })],
    ['Redis with a prefix', () => ({ redis: server.url, prefix: 'shop' })],
    [
      'a Cluster',
      () => ({ redis: kept(new Cluster(cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port })))) }),
    ],
  ];

  describe.each(places)('the processes that wait for a lock on %s', (_place, options) => {
    const apps: LockApp[] = [];
    beforeAll(async () => {
      for (const label of ['one', 'two', 'three', 'four']) apps.push(await startLockApp({ ...options(), label }));
    });
    afterAll(() => Promise.all(apps.map((app) => app.close())));

    it('are shown in their order, with their labels, each once', async () => {
      const name = `order:${randomUUID()}`;
      const all = apps.map(({ locks }) => locks) as [LockService, LockService, LockService, LockService];
      const lock = await all[0].acquire(name);
      expect((await all[3].inspect(name))?.waiters).toEqual([]);
      const waits: Promise<{ release(): Promise<void> }>[] = [];
      const wait = async (locks: LockService, mode: 'read' | 'write', queued: number) => {
        waits.push(locks.acquire(name, { wait: '1m', mode }), locks.acquire(name, { wait: '1m', mode }));
        await eventually(async () => (await all[0].inspect(name))?.waiters?.length === queued);
      };
      await wait(all[1], 'write', 1);
      await wait(all[2], 'write', 2);
      await wait(all[3], 'read', 3);

      const owner = expect.stringMatching(/^.+:\d+$/) as string;
      const state = await all[0].inspect(name);
      // Readers come in before the writers that wait, all together.
      expect(state?.waiters).toEqual([
        { owner, label: 'four', mode: 'read' },
        { owner, label: 'two', mode: 'write' },
        { owner, label: 'three', mode: 'write' },
      ]);
      const { locks: listed } = await all[3].list(name);
      expect(listed.find(({ key }) => key === name)?.waiters).toEqual(state?.waiters);

      await lock.release();
      for (const granted of waits) void granted.then((each) => each.release());
      await Promise.all(waits);
    });
  });

  describe('the queue that inspect shows', () => {
    let plain: Redis;
    let app: LockApp;
    beforeAll(async () => {
      plain = kept(new Redis(server.url));
      app = await startLockApp({ redis: server.url, label: 'observer' });
    });
    afterAll(() => app.close());

    it('ends after 100 places', async () => {
      const name = `long:${randomUUID()}`;
      const [owner, peer] = [new QueuePeer(plain), new QueuePeer(plain)];
      await owner.tryOnce(name, owner.ticket());
      const tickets = Array.from({ length: 130 }, () => peer.ticket());
      // One connection keeps their order.
      await Promise.all(tickets.map((ticket) => peer.enqueue(name, ticket)));
      const state = await app.locks.inspect(name);
      expect(state?.waiting).toBe(130);
      expect(state?.waiters).toEqual(tickets.slice(0, 100).map((ticket) => ({ owner: ticket, mode: 'write' })));
    });

    it('leaves out a process that gave no sign of life for as long as the queue waits for one', async () => {
      const name = `dead:${randomUUID()}`;
      const [owner, dead, alive] = [new QueuePeer(plain), new QueuePeer(plain), new QueuePeer(plain)];
      await owner.tryOnce(name, owner.ticket());
      const [silent, waiting] = [dead.ticket(), alive.ticket()];
      await dead.enqueue(name, silent);
      await alive.enqueue(name, waiting);
      const key = `lock:{${name}}:waiters`;
      const entry = (await plain.hget(key, silent)) as string;
      await plain.hset(key, silent, entry.replace(/^\d+/, String(Date.now() - 60_000)));
      expect((await app.locks.inspect(name))?.waiters).toEqual([{ owner: waiting, mode: 'write' }]);
    });
  });

  it('is absent where the backend keeps no queue', async () => {
    await using app = await startLockApp({ backend: memory() });
    await using _ = await app.locks.acquire('order:7');
    expect(await app.locks.inspect('order:7')).not.toHaveProperty('waiters');
  });
});
