import { randomUUID } from 'node:crypto';
import { Cluster, Redis } from 'ioredis';
import { memory, type LockService, type RedisLockModuleOptions } from 'nest-redis-lock';
import { eventually } from '../../../support/eventually.js';
import { startLockApp, type LockApp } from '../../../support/lock-app.js';
import { QueuePeer } from '../../../support/queue-peer.js';
import { startRedisCluster, type RedisCluster } from '../../../support/servers/redis-cluster.js';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';

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
  ['a Cluster', () => ({ redis: kept(new Cluster(cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port })))) })],
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
