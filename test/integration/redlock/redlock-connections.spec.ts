import { createClient } from '@redis/client';
import { Cluster, Redis } from 'ioredis';
import type { LockBackend, LockService } from 'nest-redis-lock';
import { redlock, type RedlockOptions } from 'nest-redis-lock/redlock';
import { testServices } from 'nest-redis-lock/testing';
import { eventually } from '../../support/eventually.js';
import { startRedlockNodes, type RedlockNodes } from '../../support/servers/redlock-nodes.js';

const NODES = 5;

type Connections = Parameters<typeof redlock>[0];

let nodes: RedlockNodes;
let plain: Redis[];
const closing: (() => unknown)[] = [];

beforeAll(async () => {
  nodes = await startRedlockNodes(NODES);
  plain = nodes.servers.map(({ port }) => new Redis(port));
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
  for (const client of plain) await client.flushall();
});
afterAll(async () => {
  for (const client of plain) client.disconnect();
  await nodes.stop();
});

const portOf = (index: number) => nodes.servers[index]?.port ?? 0;
const urlOf = (index: number) => `redis://127.0.0.1:${portOf(index)}`;
const urls = (count: number) => Array.from({ length: count }, (_, index) => urlOf(index));

function open(connections: Connections, options: RedlockOptions = {}, prefix?: string) {
  const backend = redlock(connections, options);
  const { locks, close } = testServices({ backend, cache: false, shutdownGrace: 0, ...(prefix && { prefix }) });
  closing.push(close);
  return { backend, locks };
}

/** What the start-up warns of. */
async function startOf(backend: LockBackend): Promise<string[]> {
  const warnings: string[] = [];
  await backend.start?.({
    commandTimeout: 1_000,
    report: ({ level, message }) => level === 'warn' && warnings.push(message),
  });
  return warnings;
}

async function nodeRedis(index: number) {
  const client = createClient({ url: urlOf(index) });
  await client.connect();
  closing.push(() => client.destroy());
  return client;
}

function ioredis(index: number): Redis {
  const client = new Redis(portOf(index));
  closing.push(() => client.disconnect());
  return client;
}

async function locksEverywhere(locks: LockService, key: string): Promise<void> {
  await locks.withLock('order', async ({ owner }) => {
    await eventually(async () => {
      const owners = await Promise.all(plain.map((client) => client.get(key)));
      return owners.every((each) => each === owner);
    });
  });
  await eventually(async () => (await Promise.all(plain.map((client) => client.exists(key)))).every((n) => n === 0));
}

describe('takes as connections', () => {
  it('clients of node-redis', async () => {
    await locksEverywhere(open(await Promise.all(plain.map((_, index) => nodeRedis(index)))).locks, 'lock:{order}');
  });

  it('URLs, options, and clients of both libraries side by side, with a prefix', async () => {
    const mixed = [urlOf(0), { host: '127.0.0.1', port: portOf(1) }, ioredis(2), await nodeRedis(3), urlOf(4)];
    await locksEverywhere(open(mixed, {}, 'shop').locks, 'shop:lock:{order}');
  });
});

it('asks a node again which server it is, when the client of the application gave the question up', async () => {
  const clients = nodes.proxies.slice(0, 3).map(({ port }) => new Redis(port, { commandTimeout: 100 }));
  closing.push(() => clients.forEach((client) => client.disconnect()));
  await Promise.all(clients.map((client) => client.ping()));
  nodes.proxies[0]?.hold('reply');
  const { backend, locks } = open(clients);
  await locks.withLock('before', async () => {});
  nodes.proxies[0]?.heal();
  await plain[1]?.set('lock:{order}', 'another:1', 'PX', 60_000);
  await eventually(async () => {
    const lock = await locks.tryAcquire('order').catch(() => null);
    await lock?.release();
    return lock;
  });
  expect(backend.diagnose?.()).toBeUndefined();
});

describe('refuses', () => {
  it.each([
    ['no nodes', 0, 'has 0 nodes'],
    ['one node', 1, 'has 1 node'],
    ['two nodes', 2, 'has 2 nodes'],
    ['an even number', 4, 'has 4 nodes'],
  ])('%s, unless any number is allowed', async (_, count, message) => {
    const remedy = 'give an odd number of at least 3, or allow any number with { anyCount: true }';
    expect(() => redlock(urls(count))).toThrow(`Option "connections" ${message}; ${remedy}`);
    if (count > 0) await open(urls(count), { anyCount: true }).locks.withLock('order', async () => {});
  });

  it('no connection at all, also where any number is allowed', () => {
    expect(() => redlock([], { anyCount: true })).toThrow('Option "connections" has 0 nodes');
  });

  it('what is no list, and what is no connection', () => {
    expect(() => redlock('redis://127.0.0.1' as unknown as Connections)).toThrow('give a list of connections');
    expect(() => redlock([urlOf(0), urlOf(1), '127.0.0.1'])).toThrow('Option "connections[2]" is "127.0.0.1"');
  });

  it('a Cluster', () => {
    const cluster = new Cluster([{ port: portOf(0) }], { lazyConnect: true });
    expect(() => redlock([cluster, urlOf(1), urlOf(2)])).toThrow('Option "connections[0]" is a Redis Cluster');
  });
});

describe('a server that is listed twice', () => {
  it('votes once, and the start-up warns of it', async () => {
    const twice = [urlOf(0), { host: 'localhost', port: portOf(0), db: 1 }, urlOf(1)];
    const { backend, locks } = open(twice);
    const [warning] = await startOf(backend);
    expect(warning).toMatch(`localhost:${portOf(0)} is the same server as connections[0]`);
    // Two of the three are left: with one of them away, there is no majority, although the server twice would be one.
    await plain[1]?.set('lock:{order}', 'another:1', 'PX', 60_000);
    expect(await locks.tryAcquire('order')).toBeNull();
  });

  it('makes no majority with itself', async () => {
    const { backend, locks } = open([urlOf(0), urlOf(0), urlOf(0)]);
    await expect(startOf(backend)).rejects.toThrow('is the same server as connections[0]');
    await expect(locks.tryAcquire('order')).rejects.toThrow('give one connection for each independent Redis');
  });

  it('votes once, although a script kept it from saying so at first', async () => {
    const busy = new Redis(portOf(0));
    const looping = busy.eval('while true do end', 0).catch(() => {});
    closing.push(() => busy.disconnect());
    await eventually(async () => (await plain[0]?.ping().catch((error: Error) => error.message))?.startsWith('BUSY'));
    const ready = { enableReadyCheck: false };
    const { backend, locks } = open([
      { port: portOf(0), ...ready },
      { port: portOf(0), db: 1, ...ready },
      { port: portOf(1), ...ready },
    ]);
    await eventually(async () => {
      const started = await startOf(backend).catch((error: Error) => [error.message]);
      return /BUSY|is being asked/.test(String(started));
    });
    await plain[0]?.script('KILL');
    await looping;
    await plain[1]?.set('lock:{order}', 'another:1', 'PX', 60_000);
    await eventually(() => /the same server as connections\[0\]/.test(String(backend.diagnose?.())));
    expect(await locks.tryAcquire('order')).toBeNull();
  });

  it('goes unnoticed where its user may not run INFO, of which the start-up warns', async () => {
    await plain[0]?.acl('SETUSER', 'blind', 'on', '>secret', '~*', '&*', '+@all', '-info');
    const blind = { port: portOf(0), username: 'blind', password: 'secret', enableReadyCheck: false };
    const warnings = await startOf(open([blind, urlOf(1), urlOf(2)]).backend);
    expect(warnings).toEqual([
      expect.stringMatching(`:${portOf(0)} does not tell which server it is.*grant its ACL user \\+info`),
    ]);
  });
});
