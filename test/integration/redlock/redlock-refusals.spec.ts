import { Redis } from 'ioredis';
import type { LockBackend, LockService } from 'nest-redis-lock';
import { redlock } from 'nest-redis-lock/redlock';
import { testServices } from 'nest-redis-lock/testing';
import { eventually } from '../../support/eventually.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

const NODES = 5;

let servers: RedisServer[];
let plain: Redis[];
const closing: (() => unknown)[] = [];

beforeAll(async () => {
  servers = await Promise.all(Array.from({ length: NODES }, () => startRedisServer()));
  plain = servers.map(({ port }) => new Redis(port));
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
  for (const client of plain) {
    await client.replicaof('NO', 'ONE');
    await client.config('SET', 'maxmemory', '0');
    await client.acl('SETUSER', 'default', '+@all', '~*');
    await client.flushall();
  }
});
afterAll(async () => {
  for (const client of plain) client.disconnect();
  await Promise.all(servers.map((server) => server.stop()));
});

function open(urls: readonly string[] = servers.map(({ url }) => url)): { backend: LockBackend; locks: LockService } {
  const backend = redlock(urls);
  const { locks, close } = testServices({ backend, cache: false, shutdownGrace: 0 });
  closing.push(close);
  return { backend, locks };
}

async function warningOf(backend: LockBackend): Promise<string> {
  const warnings: string[] = [];
  await backend.start?.({
    commandTimeout: 1_000,
    report: ({ level, message }) => level === 'warn' && warnings.push(message),
  });
  return warnings.join('\n');
}

/** What makes a node refuse, what it answers to a lock, and the remedy. */
const WAYS: readonly [string, (node: Redis) => Promise<unknown>, string, string][] = [
  [
    'is a replica',
    async (node) => node.replicaof('127.0.0.1', servers[0]?.port ?? 0),
    'READONLY',
    'it is a replica: give the address of the primary',
  ],
  ['has no memory left', (node) => node.config('SET', 'maxmemory', '1'), 'OOM', 'its memory is full'],
  ['denies the scripts', (node) => node.acl('SETUSER', 'default', '-evalsha', '-eval'), 'NOPERM', 'grant the ACL user'],
];

describe.each(WAYS)('a node that %s', (_, refuse, answer, remedy) => {
  it('is reported at the start, and the others serve', async () => {
    for (const node of plain.slice(3)) await refuse(node);
    const { backend, locks } = open();
    const warning = await warningOf(backend);
    for (const { port } of servers.slice(3)) expect(warning).toMatch(`127.0.0.1:${port}`);
    await locks.withLock('order', async () => {});
  });

  it('is named with its answer and the remedy where too few are left', async () => {
    const { locks } = open();
    await locks.withLock('before', async () => {});
    for (const node of plain.slice(2)) await refuse(node);
    const error = (await locks.tryAcquire('order').catch((failure: unknown) => failure)) as Error;
    expect(error).toMatchObject({ code: 'LOCK_BACKEND' });
    for (const { port } of servers.slice(2)) {
      expect(error.message).toMatch(new RegExp(`127.0.0.1:${port}: ${answer}[^|]*; ${remedy}`));
    }
    await eventually(async () => (await plain[0]?.exists('lock:{order}')) === 0);
  });
});

it('releases a lock also at nodes that have no memory left', async () => {
  const { locks } = open();
  await locks.withLock('order', async ({ owner }) => {
    await eventually(async () => (await plain[4]?.get('lock:{order}')) === owner);
    for (const node of plain) await node.config('SET', 'maxmemory', '1');
  });
  for (const node of plain) await eventually(async () => (await node.exists('lock:{order}')) === 0);
});

it('goes on while single nodes forget the scripts again and again', async () => {
  const { locks } = open();
  let node = 0;
  const forgetting = setInterval(() => void plain[node++ % NODES]?.script('FLUSH'), 2);
  try {
    const callers = Array.from({ length: 20 }, async (_, caller) => {
      for (let round = 0; round < 20; round++) await locks.withLock(`order:${caller}`, async () => {});
    });
    await Promise.all(callers);
  } finally {
    clearInterval(forgetting);
  }
});

describe('a node of a Redis Cluster', () => {
  let member: RedisServer;
  beforeAll(async () => {
    member = await startRedisServer({ args: ['--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf'] });
  });
  afterAll(() => member.stop());

  it('fails with what it answers, and is not taken for one that is silent', async () => {
    const { backend, locks } = open([servers[0]?.url ?? '', servers[1]?.url ?? '', member.url]);
    expect(await warningOf(backend)).toMatch(`127.0.0.1:${member.port} refuses what locks write: CLUSTERDOWN`);
    await locks.withLock('order', async () => {});
    await plain[1]?.config('SET', 'maxmemory', '1');
    const error = (await locks.tryAcquire('another').catch((failure: unknown) => failure)) as Error;
    expect(error.message).toMatch(new RegExp(`127.0.0.1:${member.port}: CLUSTERDOWN`));
  });
});
