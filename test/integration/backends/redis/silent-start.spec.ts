import { createClient, createCluster } from '@redis/client';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { type RedisConnection, SemaphoreService } from 'nest-redis-lock';
import { eventually } from '../../../support/eventually.js';
import { startLockApp } from '../../../support/lock-app.js';
import {
  type Address,
  endAll,
  ended,
  ends,
  ioredis,
  node,
  nodeRedis,
  proxyTo,
  server,
  serves,
  usesServers,
} from '../../../support/silenced-redis.js';

usesServers();

describe('a connection that is silent from the beginning is given up', () => {
  const OPTIONS: [string, RedisOptions][] = [
    ['by default', {}],
    ['where calls wait for long', { maxRetriesPerRequest: null }],
    ['without the check of the client', { maxRetriesPerRequest: null, enableReadyCheck: false }],
    ['with RESP3 and a password', { maxRetriesPerRequest: null, protocol: 3, username: 'some', password: 'pw' }],
  ];

  async function silentAtFirst(): Promise<Address> {
    const proxy = await proxyTo(server.port);
    proxy.silenceNext();
    return { host: '127.0.0.1', port: proxy.port };
  }

  beforeAll(async () => {
    const admin = new Redis(server.url);
    await admin.call('ACL', 'SETUSER', 'some', 'on', '>pw', '~*', '&*', '+@all');
    admin.disconnect();
  });
  afterAll(endAll);

  // Side by side, as each takes two of the periods in which connections are looked at.
  it.concurrent.each(OPTIONS)(
    '%s',
    async (_what, options) => {
      const address = await silentAtFirst();
      const app = await startLockApp({ redis: { ...address, ...options }, cache: false });
      ends.push(() => app.close());
      await serves(app);
    },
    40_000,
  );

  it.concurrent(
    'of a client of the application',
    async () => {
      const client = ioredis({ ...(await silentAtFirst()), maxRetriesPerRequest: null });
      const app = await startLockApp({ redis: client, cache: false });
      ends.push(() => app.close());
      await serves(app);
    },
    40_000,
  );

  it.concurrent(
    'of a client of node-redis that connects again',
    async () => {
      const proxy = await proxyTo(server.port);
      const client = await nodeRedis(createClient, { host: '127.0.0.1', port: proxy.port });
      const app = await startLockApp({ redis: client, cache: false, failFast: true });
      ends.push(() => app.close());
      proxy.silenceNext();
      proxy.reset();
      await serves(app);
    },
    40_000,
  );
});

it('the start says which clients keep a silent connection', async () => {
  const client = ioredis({ host: '127.0.0.1', port: server.port, retryStrategy: () => null });
  const app = await startLockApp({ redis: client, cache: {}, failFast: true });
  ends.push(() => app.close());
  expect(app.logger.matching(/falls silent is kept.*retryStrategy that reconnects, or socketTimeout/)).toHaveLength(1);

  const admin = new Redis(node.url);
  await admin.config('SET', 'cluster-announce-port', node.port);
  admin.disconnect();
  for (const [socketTimeout, lines] of [
    [undefined, 1],
    [5_000, 0],
  ] as const) {
    const defaults = { socket: { ...(socketTimeout && { socketTimeout }) }, pingInterval: 2_000 };
    const cluster = createCluster({ rootNodes: [{ url: node.url }], defaults });
    ended(cluster, (made) => made.destroy());
    await cluster.connect();
    const other = await startLockApp({ redis: cluster, cache: false, failFast: true });
    ends.push(() => other.close());
    expect(other.logger.matching(/falls silent is kept.*socketTimeout: 5000/)).toHaveLength(lines);
  }
});

describe('after the password has changed, messages', () => {
  const rotated: [string, (address: Address) => { connection: RedisConnection; rotate: () => unknown }][] = [
    [
      'of an ioredis client',
      (address) => {
        const client = ioredis({ ...address, password: 'old' });
        return {
          connection: client,
          rotate: async () => {
            client.options.password = 'new';
            await client.auth('new');
          },
        };
      },
    ],
    [
      'of an ioredis Cluster, by its options',
      (address) => {
        const redisOptions = { password: 'old' };
        const cluster = ended(new Cluster([{ ...address }], { redisOptions }), (made) => made.disconnect());
        return {
          connection: cluster,
          rotate: () => Object.assign(cluster.options.redisOptions ?? {}, { password: 'new' }),
        };
      },
    ],
    [
      'of an ioredis Cluster, by its nodes',
      (address) => {
        const redisOptions = { password: 'old' };
        const cluster = ended(new Cluster([{ ...address }], { redisOptions }), (made) => made.disconnect());
        return {
          connection: cluster,
          rotate: () => cluster.nodes().forEach((each) => Object.assign(each.options, { password: 'new' })),
        };
      },
    ],
  ];

  it.each(rotated)(
    '%s arrive again: of locks, semaphores, the cache and tracking',
    async (what, make) => {
      const cluster = what.includes('Cluster');
      const target = cluster ? node : server;
      const admin = ended(new Redis(target.url), (client) => client.disconnect());
      if (cluster) await admin.config('SET', 'cluster-announce-port', target.port);
      await admin.config('SET', 'requirepass', 'old');
      await admin.auth('old');
      ends.push(() => admin.config('SET', 'requirepass', ''));
      const { connection, rotate } = make({ host: '127.0.0.1', port: target.port });
      const bus = cluster ? 'pubsub' : 'tracking';
      const app = await startLockApp({
        redis: connection,
        cache: { l1: { max: 10, ttl: 10_000, bus } },
        failFast: true,
      });
      ends.push(() => app.close());
      const held = await app.locks.acquire('name');
      const waiting = app.locks.acquire('name', { wait: 10_000, order: 'fifo' });
      const semaphores = app.app.get(SemaphoreService);
      const permit = await semaphores.acquire('permits', { permits: 1 });
      const queued = semaphores.acquire('permits', { permits: 1, wait: 10_000 });
      const channels = async () => ((await admin.pubsub('CHANNELS')) as string[]).length;
      const before = cluster ? 6 : 8;
      await eventually(async () => (await channels()) === before);
      await admin.config('SET', 'requirepass', 'new');
      await rotate();
      await admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await eventually(async () => (await channels()) < before);
      await eventually(async () => (await channels()) === before, { within: 15_000 });
      await held.release();
      await permit.release();
      await (await waiting).release();
      await (await queued).release();
    },
    40_000,
  );
});
