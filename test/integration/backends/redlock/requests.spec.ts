import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createClient } from '@redis/client';
import { Cluster, Redis } from 'ioredis';
import type { LockBackend, LockService } from 'nest-redis-lock';
import type { Notice } from 'nest-redis-lock/backend';
import { redlock, type RedlockOptions } from 'nest-redis-lock/redlock';
import { testServices } from 'nest-redis-lock/testing';
import { eventually } from '../../../support/eventually.js';
import { type RedlockNodes, startRedlockNodes } from '../../../support/servers/redlock-nodes.js';
import { openBackend } from '../../../support/open-backend.js';

describe('two of three nodes that go on refusing', () => {
  it.each(['answers', 'is down'])('end the wait of a call where the third one %s', async (third) => {
    const nodes = await startRedlockNodes(3);
    const admins = nodes.servers.map(({ port }) => new Redis(port));
    const close: (() => unknown)[] = [];
    try {
      for (const admin of admins.slice(0, 2)) {
        await admin.call('ACL', 'SETUSER', 'shop', 'on', '>pw', '~*', '&*', '+@all', '-set');
      }
      for (const admin of admins) admin.disconnect();
      if (third === 'is down') await nodes.servers[2]?.stop();
      const connections = nodes.servers.map(({ port }, index) =>
        index < 2 ? { port, username: 'shop', password: 'pw' } : { port },
      );
      const services = testServices({ backend: redlock(connections), cache: false, shutdownGrace: 0 });
      close.push(() => services.close());
      const acquiring = services.locks.acquire('order', { wait: Infinity });
      await expect(acquiring).rejects.toMatchObject({
        code: 'LOCK_BACKEND',
        message: expect.stringContaining('grant the ACL user'),
      });
    } finally {
      for (const each of close) await each();
      await nodes.stop();
    }
  });
});

describe('requests', () => {
  const NODES = 3;

  type ClientOptions = { keyPrefix?: string; enableAutoPipelining?: boolean; showFriendlyErrorStack?: boolean };

  let nodes: RedlockNodes;
  let plain: Redis[];
  const closing: (() => unknown)[] = [];

  beforeAll(async () => {
    nodes = await startRedlockNodes(NODES);
    plain = nodes.servers.map(({ port }) => new Redis(port));
  });
  afterEach(async () => {
    for (const close of closing.splice(0).toReversed()) await close();
  });
  afterAll(async () => {
    for (const client of plain) client.disconnect();
    await nodes.stop();
  });

  /** Locks on clients of the application. */
  async function locksOn(options: ClientOptions = {}): Promise<LockService> {
    const clients = nodes.servers.map(({ port }) => new Redis({ ...options, port }));
    await Promise.all(clients.map((client) => once(client, 'ready')));
    for (const client of clients) closing.push(() => client.disconnect());
    const { locks, close } = testServices({ backend: redlock(clients), cache: false, shutdownGrace: 0 });
    closing.push(close);
    return locks;
  }

  /** Whether each node has this owner for the key: the last of them may answer later than their majority. */
  async function haveOwner(key: string, owner: string | null): Promise<boolean> {
    const owners = await Promise.all(plain.map((client) => client.get(key)));
    return owners.every((each) => each === owner);
  }

  describe.each<[string, ClientOptions, string]>([
    ['as they are', {}, ''],
    ['with a prefix for keys', { keyPrefix: 'shop:' }, 'shop:'],
    ['with automatic pipelines', { enableAutoPipelining: true }, ''],
    ['with stacks of errors', { showFriendlyErrorStack: true }, ''],
  ])('with clients %s', (_, options, prefix) => {
    it.each(['order', 'größe €', '𝒜'])('takes and releases %s at each node', async (name) => {
      const locks = await locksOn(options);
      await locks.withLock(name, async ({ owner }) => {
        await eventually(() => haveOwner(`${prefix}lock:{${name}}`, owner));
      });
      await eventually(() => haveOwner(`${prefix}lock:{${name}}`, null));
    });
  });

  it('goes on when the nodes have forgotten the scripts', async () => {
    const locks = await locksOn();
    await locks.withLock('before', async () => {});
    await Promise.all(plain.map((client) => client.script('FLUSH')));
    await locks.withLock('after', async ({ owner }) => {
      await eventually(() => haveOwner('lock:{after}', owner));
    });
  });

  it('shows the arguments of its commands to those who look at them', async () => {
    const locks = await locksOn();
    const shown: unknown[] = [];
    const { sendCommand } = Redis.prototype;
    closing.push(() => {
      Redis.prototype.sendCommand = sendCommand;
    });
    Redis.prototype.sendCommand = function (...sent) {
      shown.push(sent[0].args);
      return sendCommand.apply(this, sent);
    };
    await locks.withLock('shown', async () => {});
    expect(shown).toContainEqual(expect.arrayContaining(['lock:{shown}', 'lock:{shown}:fence', 'lock:{shown}:wanted']));
  });
});

describe('connections', () => {
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
    const backend = openBackend(redlock(connections, options));
    const { locks, close } = testServices({ backend, cache: false, shutdownGrace: 0, ...(prefix && { prefix }) });
    closing.push(close);
    return { backend, locks };
  }

  /** What the start-up warns of. */
  async function startOf(backend: LockBackend): Promise<string[]> {
    const warnings: string[] = [];
    const report = ({ level, message }: Notice) => void (level === 'warn' && warnings.push(message));
    await openBackend(backend, { report }).start?.();
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
      expect(() => redlock([urlOf(0), urlOf(1), '127.0.0.1'])).toThrow('Option "connections[2]" is "..."');
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
});

describe('the end of an application', () => {
  const NODES = 5;

  let nodes: RedlockNodes;
  let plain: Redis[];

  beforeAll(async () => {
    nodes = await startRedlockNodes(NODES);
    plain = nodes.servers.map(({ port }) => new Redis(port));
  });
  afterEach(async () => {
    await Promise.all(plain.map((client) => client.flushall()));
  });
  afterAll(async () => {
    for (const client of plain) client.disconnect();
    await nodes.stop();
  });

  async function locksAt(pattern: string): Promise<number[]> {
    const keys = await Promise.all(plain.map((client) => client.keys(pattern)));
    return keys.map(({ length }) => length);
  }

  const NONE = Array.from({ length: NODES }, () => 0);

  it('sends the release of a request that is given up at once after the request itself', async () => {
    const backend = openBackend(redlock(nodes.urls));
    const ticketOf = () => `${randomUUID()}:1`;
    const acquire = (name: string, ticket = ticketOf()) =>
      new Promise((resolve, reject) => {
        backend.acquire({ name, ticket, ttl: 60_000, waits: true }).then(resolve, reject);
      });
    const release = (name: string, ticket: string) =>
      new Promise((resolve, reject) => {
        backend.release({ name, ticket }).then(resolve, reject);
      });
    const ticket = ticketOf();
    // All nodes know the scripts, also those that a majority did not wait for.
    const before = ticketOf();
    await acquire('before', before);
    await eventually(async () => (await locksAt('lock:{before}')).every((count) => count === 1));
    await release('before', before);
    await eventually(async () => (await locksAt('lock:{before}')).every((count) => count === 0));
    // No reply arrives: what the nodes have in the end comes from the order of the requests alone.
    for (const proxy of nodes.proxies) proxy.hold('reply');
    const asked = [acquire('first'), acquire('given-up', ticket), release('given-up', ticket)];
    asked.push(acquire('last'));
    await eventually(async () => (await locksAt('lock:{last}')).every((count) => count === 1));
    expect(await locksAt('lock:{given-up}')).toEqual(NONE);
    for (const proxy of nodes.proxies) proxy.heal();
    await Promise.allSettled(asked);
    await backend.close();
  });

  it('gives back at its end what a node has yet to free that has answered nothing', async () => {
    const { process: silent } = nodes.servers[2]!;
    // One takes the node for silent soon, and asks it no more; the other one still waits for its answers at the end.
    const [quick, patient] = [redlock(nodes.urls, { nodeTimeout: 50 }), redlock(nodes.urls, { nodeTimeout: 1_000 })];
    const services = [quick, patient].map((backend) => testServices({ backend, cache: false, shutdownGrace: 1_000 }));
    const take = (name: string) =>
      services.map(({ locks }, index) => locks.acquire(`order:${name}:${index}`, { ttl: '5m' }));
    // The nodes know the scripts.
    for (const { locks } of services) await locks.withLock('order:warm', async () => {});
    await eventually(async () => (await locksAt('lock:{order:warm}')).every((count) => count === 0));
    const held = await Promise.all(take('before'));
    await eventually(async () => (await locksAt('lock:{order:before:*}')).every((count) => count === held.length));
    silent.pause();
    try {
      held.push(...(await Promise.all(take('meanwhile'))));
      await eventually(() => quick.diagnose?.() !== undefined);
      await Promise.all(held.map((lock) => lock.release()));
      await Promise.all(services.map(({ close }) => close()));
    } finally {
      silent.resume();
    }
    await eventually(async () => (await locksAt('lock:{order:*}')).every((count) => count === 0));
  });

  it('leaves no lock when the application shuts down with calls under way', async () => {
    for (let pause = 1; pause <= 12; pause++) {
      const { locks, close } = testServices({ backend: redlock(nodes.urls), cache: false, shutdownGrace: 1_000 });
      await locks.withLock('warm', async () => {});
      const calls = Array.from({ length: 300 }, async (_, call) =>
        locks.withLock(`order:${call % 150}`, { ttl: 60_000 }, async () => {
          await new Promise((resolve) => setTimeout(resolve, call % 7));
        }),
      );
      const settled = Promise.allSettled(calls);
      await new Promise((resolve) => setTimeout(resolve, pause));
      await close();
      await settled;
      expect(await locksAt('lock:{order:*}')).toEqual(NONE);
    }
  });
});
