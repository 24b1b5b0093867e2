import { setImmediate as turn } from 'node:timers/promises';
import { Cluster, Redis } from 'ioredis';
import { COMMIT } from '../../../../lib/backends/redis/cache/loads.lua.js';
import { RedisCacheKeys } from '../../../../lib/backends/redis/cache/redis-cache-keys.js';
import { deleteMatching } from '../../../../lib/backends/redis/cache/redis-deletions.js';
import { inOrder, scanOn } from '../../../../lib/backends/redis/connection/read-batch.js';
import { integerOf } from '../../../../lib/backends/redis/connection/redis-script.js';
import { ScriptRunner } from '../../../../lib/backends/redis/connection/script-runner.js';
import { openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { Gate } from '../../../support/gate.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { type RedisCluster, startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('a deletion by prefix or pattern', () => {
  let server: RedisServer;
  let cluster: RedisCluster;

  beforeAll(async () => {
    server = await startRedisServer();
    cluster = await startRedisCluster();
  });
  afterAll(async () => {
    await server.stop();
    await cluster.stop();
  });

  const nodes = () => cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port }));
  const clients: [string, () => Redis | Cluster][] = [
    ['a client', () => new Redis(server.url)],
    ['a client with a keyPrefix', () => new Redis(server.url, { keyPrefix: 'app[1]:*' })],
    ['a client with numbers as strings', () => new Redis(server.url, { stringNumbers: true })],
    ['a Cluster', () => cluster.client()],
    ['a Cluster with a keyPrefix', () => new Cluster(nodes(), { keyPrefix: 'app?:' })],
    ['a Cluster with a keyPrefix of its nodes', () => new Cluster(nodes(), { redisOptions: { keyPrefix: 'node:' } })],
  ];

  describe.each(clients)('with %s', (_, connect) => {
    let client: Redis | Cluster;
    let keys: RedisCacheKeys;

    beforeAll(() => {
      client = connect();
      keys = new RedisCacheKeys('shop', client.options.keyPrefix);
    });
    afterEach(async () => {
      const masters = client.isCluster ? (client as Cluster).nodes('master') : [client as Redis];
      await Promise.all(masters.map((master) => master.flushall()));
    });
    afterAll(() => client.disconnect());

    const put = (names: string[]) => Promise.all(names.map((name) => client.set(keys.value(name), name, 'PX', 60_000)));
    const remaining = async (names: string[]) => {
      const found = await Promise.all(
        names.map(async (name) => integerOf(await client.exists(keys.value(name))) === 1),
      );
      return names.filter((_name, index) => found[index]);
    };
    const deletePrefix = (prefix: string, batch = 100) =>
      deleteMatching(new ScriptRunner(client), keys, { match: { prefix }, batch });

    it('deletes what begins with a prefix, wherever it lies, and answers how many', async () => {
      const mine = Array.from({ length: 500 }, (_each, index) => `product:${index}`);
      const others = ['product', 'products:1', 'x:product:1'];
      await put([...mine, ...others]);
      expect(await deletePrefix('product:', 20)).toBe(500);
      expect(await remaining([...mine, ...others])).toEqual(others);
      expect(await deletePrefix('product:')).toBe(0);
    });

    it('runs many times at once, and warns of no listeners', async () => {
      await put(Array.from({ length: 50 }, (_each, index) => `many:${index}`));
      const warnings: Error[] = [];
      const onWarning = (warning: Error) => warnings.push(warning);
      process.on('warning', onWarning);
      await Promise.all(Array.from({ length: 30 }, () => deletePrefix('many:', 5)));
      await new Promise((resolve) => setImmediate(resolve));
      process.off('warning', onWarning);
      expect(warnings).toEqual([]);
    });

    it.each(['a*b', 'a?b', 'a[b]', 'a[^b]', 'a\\b', 'a[', 'a}b', '{t}:', '{', '}', '%7D', 'ü'])(
      'takes the prefix %s as it is written',
      async (prefix) => {
        const mine = [`${prefix}1`, `${prefix}:{2}`, prefix];
        const others = ['aXb1', 'ab1', 'b]1', 'aab', 'A', 'a'];
        await put([...mine, ...others]);
        expect(await deletePrefix(prefix)).toBe(mine.length);
        expect(await remaining([...mine, ...others])).toEqual(others);
      },
    );

    it('deletes what matches a pattern', async () => {
      const others = ['user:1:orders', 'user:10:name', 'xuser:1:name', 'user:x:name'];
      await put(['user:1:name', 'user:2:name', ...others]);
      expect(
        await deleteMatching(new ScriptRunner(client), keys, { match: { pattern: 'user:[0-9]:name' }, batch: 10 }),
      ).toBe(2);
      expect(await remaining(['user:1:name', 'user:2:name', ...others])).toEqual(others);
    });

    it('deletes everything with an empty prefix, and nothing that is no value of this prefix of the module', async () => {
      const other = new RedisCacheKeys('shop2', client.options.keyPrefix);
      const kept = [
        other.value('a'),
        other.lease('a'),
        keys.set('a'),
        keys.bits('a'),
        keys.tag('a'),
        keys.barrier('a'),
      ];
      for (const key of [...kept, 'cache:a', 'shop:lock:{a}']) await client.set(key, 'kept', 'PX', 60_000);
      await put(['a', 'b']);
      expect(await deletePrefix('')).toBe(2);
      for (const key of [...kept, 'cache:a', 'shop:lock:{a}']) expect(await client.get(key)).toBe('kept');
    });

    it.each(['product:1', 'product:{1}', '{product:1}', 'product:}'])('fences what loads %s', async (name) => {
      const others = ['order:1', 'a:product:1', '{a}:1'];
      for (const each of [name, ...others]) await client.set(keys.lease(each), '0token', 'PX', 60_000);
      await deletePrefix(name.slice(0, -1));
      expect(integerOf(await client.exists(keys.lease(name)))).toBe(0);
      expect(integerOf(await client.exists(keys.lease('order:1')))).toBe(1);
      expect(integerOf(await client.exists(keys.lease('{a}:1')))).toBe(1);
    });

    it('leaves nothing of loads that began before it, whenever they commit', async () => {
      const scripts = new ScriptRunner(client);
      const names = Array.from({ length: 300 }, (_each, index) => `load:${index}`);
      for (const name of names) await client.set(keys.lease(name), '0token', 'PX', 60_000);
      const deletion = deletePrefix('load:', 10);
      const commits: unknown[] = [];
      for (const name of names) {
        const args = [keys.channel, '0token', 60_000, name, 'old'];
        commits.push(await scripts.run(COMMIT, [keys.lease(name), keys.value(name)], args));
      }
      await deletion;
      expect(commits.map(Number)).toContain(1);
      expect(commits.map(Number)).toContain(0);
      expect(await remaining(names)).toEqual([]);
      scripts.close();
    });
  });

  it('goes on in batches, each deleted before the next is looked for', async () => {
    const client = new Redis(server.url);
    const keys = new RedisCacheKeys('batches');
    await client.mset(Object.fromEntries(Array.from({ length: 2_000 }, (_, index) => [keys.value(`${index}`), 'x'])));
    const monitor = await client.monitor();
    const commands: string[][] = [];
    // Not those of scripts: a proxy before several servers sends SCAN to all of them, and a script to one.
    monitor.on('monitor', (_time: string, args: string[], source: string) => source !== 'lua' && commands.push(args));
    expect(await deleteMatching(new ScriptRunner(client), keys, { match: { prefix: '' }, batch: 50 })).toBe(2_000);
    await client.get('the end');
    await eventually(() => commands.some(([name]) => name === 'get'));
    const relevant = commands.filter(([name = '']) => ['scan', 'unlink'].includes(name.toLowerCase()));
    const unlinks = relevant.filter(([name]) => name?.toLowerCase() === 'unlink');
    // SCAN goes on to the end of a bucket.
    expect(Math.max(...unlinks.map((args) => args.length - 1))).toBeLessThan(100);
    expect(unlinks.length).toBeGreaterThan(20);
    for (const [index, [name]] of relevant.entries()) {
      if (name?.toLowerCase() === 'unlink') expect(relevant[index - 1]?.[0]?.toLowerCase()).toBe('scan');
    }
    monitor.disconnect();
    client.disconnect();
  });

  it.each(['scan', 'unlink'])('begins its scan anew when the connection breaks at %s', async (command) => {
    const proxy = await FaultProxy.start(server.port);
    const client = new Redis({ host: '127.0.0.1', port: proxy.port, retryStrategy: () => 10 });
    const plain = new Redis(server.url);
    const keys = new RedisCacheKeys('broken');
    const names = Array.from({ length: 300 }, (_, index) => keys.value(`${index}`));
    await plain.mset(Object.fromEntries(names.map((name) => [name, 'x'])));
    const lost = proxy.lose(command, true);
    const monitor = await plain.monitor();
    let scansFromStart = 0;
    monitor.on('monitor', (_time: string, [name, cursor]: string[]) => {
      if (name === 'scan' && cursor === '0') scansFromStart += 1;
    });
    await deleteMatching(new ScriptRunner(client), keys, { match: { prefix: '' }, batch: 10 });
    await lost;
    expect(await plain.exists(...names)).toBe(0);
    await eventually(() => scansFromStart >= 3);
    monitor.disconnect();
    client.disconnect();
    plain.disconnect();
    await proxy.stop();
  });

  it('gets no keys of another scan, or none, where a reply is doubled on the way', async () => {
    const proxy = await FaultProxy.start(server.port);
    const client = new Redis(proxy.port);
    // Of the reply that belongs to no command.
    client.on('error', () => {});
    const scripts = new ScriptRunner(client);
    const scan = (glob: string) =>
      scanOn(scripts, client, ['0', 'MATCH', glob, 'COUNT', 100_000]).catch(() => 'failed');
    try {
      await client.set('scanned', 1);
      // The server knows the script behind it then.
      await scan('none');
      proxy.hold('reply');
      const come = proxy.mixUp('doubled');
      const scans = [scan('none')];
      await eventually(() => proxy.holds);
      scans.push(scan('scanned'));
      const answered = client.echo('sent').catch(() => 'failed');
      await turn();
      proxy.heal();
      const [none, one] = await Promise.all(scans);
      await answered;
      expect(come()).toBe(true);
      expect([['0', []], 'failed']).toContainEqual(none);
      expect([['0', ['scanned']], 'failed']).toContainEqual(one);
    } finally {
      client.disconnect();
      await proxy.stop();
    }
  });

  it('gets no answer of another command to a deletion, where a reply is doubled on the way', async () => {
    const proxy = await FaultProxy.start(server.port);
    const client = new Redis(proxy.port);
    // Of the reply that belongs to no command.
    client.on('error', () => {});
    const scripts = new ScriptRunner(client);
    const unlink = () => inOrder(scripts, client, () => client.unlink(['unlinked'])).catch(() => 'failed');
    try {
      // The server knows the script behind it then.
      await unlink();
      proxy.hold('reply');
      const come = proxy.mixUp('doubled');
      const other = client.incrby('other', 7).catch(() => 'failed');
      await eventually(() => proxy.holds);
      const deletion = unlink();
      await turn();
      proxy.heal();
      await other;
      expect([0, 'failed']).toContain(await deletion);
      expect(come()).toBe(true);
    } finally {
      client.disconnect();
      await proxy.stop();
    }
  });

  it('rejects when the server is away', async () => {
    const proxy = await FaultProxy.start(server.port);
    const client = new Redis({ host: '127.0.0.1', port: proxy.port, retryStrategy: () => null });
    client.on('error', () => {});
    await client.ping();
    await proxy.stop();
    await expect(
      deleteMatching(new ScriptRunner(client), new RedisCacheKeys(undefined), { match: { prefix: '' }, batch: 10 }),
    ).rejects.toThrow();
  });
});

describe('getDel', () => {
  let server: RedisServer;
  let cluster: RedisCluster;

  beforeAll(async () => {
    [server, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
  });
  afterAll(() => Promise.all([server.stop(), cluster.stop()]));

  async function onCluster() {
    const client = cluster.client();
    const instance = await openCache({ redis: client, prefix: 'shop' });
    const close = async () => {
      await instance.close();
      client.disconnect();
    };
    return { ...instance, close, [Symbol.asyncDispose]: close };
  }

  describe.each([
    ['on Redis', () => openCache({ redis: { port: server.port, keyPrefix: 'mine:' }, cache: { l1: {} } })],
    ['on a Cluster', onCluster],
    ['in memory', () => openCache({ redis: server.url, cache: { memory: {} } })],
  ])('%s', (_, open) => {
    it('del answers how many values there were', async () => {
      await using instance = await open();
      const { cache } = instance;
      await cache.mset({ a: 1, b: { c: 2 } });
      expect(await cache.del(['a', 'b', 'none'])).toBe(2);
      expect(await cache.del('a')).toBe(0);
      await cache.getOrSet('stale', () => 'old', { ttl: 1, staleTtl: '1h' });
      await eventually(async () => !(await cache.has('stale')));
      expect(await cache.del('stale')).toBe(1);
      expect(await cache.invalidate('stale')).toBeUndefined();
    });

    it('one of all who ask gets a value, whatever it is, and nothing is left', async () => {
      await using instance = await open();
      const { cache } = instance;
      const values = ['text ü', 7, { of: new Date(0), bytes: Buffer.from([0, 255, 128]) }, null];
      for (const value of values) {
        await cache.set('once}', value);
        expect(await cache.getOrSet('once}', () => 'loaded')).toEqual(value);
        const got = await Promise.all(Array.from({ length: 10 }, () => cache.getDel('once}')));
        expect(got.filter((each) => each !== undefined)).toEqual([value]);
        expect(await cache.has('once}')).toBe(false);
      }
      expect(await cache.getDel('never')).toBeUndefined();
    });

    it('what is stale, or ended by a tag, is deleted and no answer', async () => {
      await using instance = await open();
      const { cache } = instance;
      await cache.set('k', 'old', { ttl: '1h' });
      await cache.expire('k', { soft: true });
      expect(await cache.getDel('k')).toBeUndefined();
      expect(await cache.ttl('k')).toBeNull();
      await cache.set('k', 'old', { tags: ['t'] });
      await cache.deleteByTag('t');
      expect(await cache.getDel('k')).toBeUndefined();
      await cache.set('k', 'new', { tags: ['t'] });
      expect(await cache.getDel('k')).toBe('new');
    });

    it('fences the loads that began before, and keeps the order of the calls', async () => {
      await using instance = await open();
      const { cache } = instance;
      const [begun, gate] = [new Gate(), new Gate()];
      const slow = cache.getOrSet('k', async () => {
        begun.open();
        await gate.opened;
        return 'read before';
      });
      await begun.opened;
      expect(await cache.getDel('k')).toBeUndefined();
      gate.open();
      await slow;
      expect(await cache.has('k')).toBe(false);
      const done = await cache
        .pipeline()
        .set('k', 1)
        .getDel('k')
        .get('k')
        .set('k', 2)
        .del(['k', 'none'])
        .has('k')
        .exec();
      expect(done).toEqual([undefined, 1, undefined, undefined, 1, false]);
    });

    it('sets stand in pipelines, in the order of the calls', async () => {
      await using instance = await open();
      const cache = instance.cache.namespace('sets');
      const done = await cache
        .pipeline()
        .sets.add('s', ['a', 'b'], { ttl: '1h' })
        .sets.remove('s', 'a')
        .sets.has('s', 'a')
        .sets.members('s')
        .set('s', 'value')
        .expiringSet.add('s', ['x', 'y'], '1h')
        .expiringSet.remove('s', 'x')
        .expiringSet.has('s', 'y')
        .expiringSet.members('s')
        .expiringSet.size('s')
        .get<string>('s')
        .exec();
      expect(done).toEqual([2, 1, false, ['b'], undefined, 2, 1, true, ['y'], 1, 'value']);
      expect(await cache.sets.members('s')).toEqual(['b']);
    });
  });

  it('a getDel that is not confirmed is no answer, and deletes later', async () => {
    using scripted = scriptedCache();
    const { cache, store } = scripted;
    const { take, invalidate } = store;
    await cache.set('k', 'v');
    const refused = () => Promise.reject(new Error('refused'));
    Object.assign(store, { take: refused, invalidate: refused });
    expect(await cache.getDel('k')).toBeUndefined();
    await expect(cache.getDel('k', { onRedisError: 'throw' })).rejects.toMatchObject({ code: 'CACHE_BACKEND' });
    expect(await cache.del('k')).toBe(0);
    Object.assign(store, { take, invalidate });
    await eventually(() => scripted.engine.stats().unconfirmedInvalidations === 0);
    expect(await cache.get('k')).toBeUndefined();
  });
});
