import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Lock, LockBackend, LockService } from 'nest-redis-lock';
import { redlock, type RedlockOptions } from 'nest-redis-lock/redlock';
import { testServices } from 'nest-redis-lock/testing';
import { eventually } from '../../../support/eventually.js';
import { type RedlockNodes, startRedlockNodes } from '../../../support/servers/redlock-nodes.js';
import { openBackend, type OpenBackend } from '../../../support/open-backend.js';

describe('nodes that are away', () => {
  const NODES = 5;

  let nodes: RedlockNodes;
  const closing: (() => Promise<void>)[] = [];

  beforeEach(async () => {
    nodes = await startRedlockNodes(NODES);
  });
  afterEach(async () => {
    await Promise.all(closing.splice(0).map((close) => close()));
    await nodes.stop();
  });

  function open(options: RedlockOptions = {}): { backend: OpenBackend; locks: LockService } {
    const backend = openBackend(redlock(nodes.urls, options));
    const { locks, close } = testServices({ backend, cache: false, shutdownGrace: 0 });
    closing.push(close);
    return { backend, locks };
  }

  /** Has INFO state another uptime, in as many bytes. */
  function withUptime(seconds: number): (reply: Buffer) => Buffer {
    return (reply) => {
      const fields = /uptime_in_seconds:\d+\r\nuptime_in_days:\d+/;
      const stated = `uptime_in_seconds:${seconds}\r\ndays:0`;
      return Buffer.from(
        reply.toString('latin1').replace(fields, (old) => stated.padEnd(old.length)),
        'latin1',
      );
    };
  }

  const ticketOf = () => `${randomUUID()}:1`;
  const request = (name: string, ticket = ticketOf(), ttl = 20_000) => ({ name, ticket, ttl });

  async function acquire(backend: OpenBackend, ...args: Parameters<typeof request>) {
    return new Promise<Awaited<ReturnType<OpenBackend['acquire']>>>((resolve, reject) => {
      backend.acquire(request(...args)).then(resolve, reject);
    });
  }

  /** What each node has under the key of the name. */
  async function ownersOf(name: string): Promise<(string | null)[]> {
    return Promise.all(nodes.servers.map(({ port }) => ownerAt(port, name)));
  }

  async function ownerAt(port: number, name: string): Promise<string | null> {
    const client = new Redis(port);
    try {
      return await client.get(`lock:{${name}}`);
    } finally {
      client.disconnect();
    }
  }

  describe('with two of five nodes away', () => {
    const ways: readonly [string, (index: number) => Promise<void> | void][] = [
      ['dead', (index) => nodes.servers[index]?.stop()],
      ['paused', (index) => nodes.servers[index]?.process.pause()],
      ['refusing connections', (index) => nodes.proxies[index]?.refuse()],
    ];

    it.each(ways)('%s, a lock is taken without a wait for them', async (_, fail) => {
      // A wait for a node that is away would outlast the test.
      const { locks } = open({ nodeTimeout: '1h' });
      await locks.withLock('before', async () => {});
      await fail(0);
      await fail(1);
      for (let round = 0; round < 5; round++) await locks.withLock(`round:${round}`, async () => {});
      nodes.servers[0]?.process.resume();
      nodes.servers[1]?.process.resume();
    });

    it('paused, they serve again when they answer', async () => {
      const { locks } = open();
      for (const { process } of nodes.servers.slice(0, 2)) process.pause();
      await locks.withLock('first', async () => {});
      for (const { process } of nodes.servers.slice(0, 2)) process.resume();
      await eventually(() =>
        locks.withLock(
          'again',
          async () => (await ownersOf('again')).filter((owner) => owner !== null).length === NODES,
        ),
      );
    });
  });

  describe('with three of five nodes away', () => {
    it('fails in time, and names each node with its cause', async () => {
      const { backend } = open();
      await acquire(backend, 'before');
      await Promise.all(nodes.servers.slice(0, 3).map((server) => server.stop()));
      const error = await acquire(backend, 'after').catch((failure: Error) => failure);
      const { message } = error as Error;
      expect(message).toMatch('of 5 nodes failed, but 3 must agree');
      for (const { port } of nodes.proxies.slice(0, 3)) expect(message).toMatch(`Redis at 127.0.0.1:${port}`);
    });

    it('shows the causes in the LockBackendError of the caller', async () => {
      const { locks } = open();
      await locks.withLock('before', async () => {});
      for (const { process } of nodes.servers.slice(0, 3)) process.pause();
      const error = await locks.tryAcquire('after').catch((failure: Error) => failure);
      for (const { process } of nodes.servers.slice(0, 3)) process.resume();
      expect(error).toMatchObject({ code: 'LOCK_BACKEND' });
      for (const { port } of nodes.proxies.slice(0, 3)) expect((error as Error).message).toMatch(`127.0.0.1:${port}`);
    });

    it('leaves nothing at the nodes that granted it', async () => {
      const { locks } = open();
      await locks.withLock('before', async () => {});
      await Promise.all(nodes.servers.slice(0, 3).map((server) => server.stop()));
      await expect(locks.acquire('after', { wait: 0 })).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
      const owners = () => Promise.all(nodes.servers.slice(3).map(({ port }) => ownerAt(port, 'after')));
      await eventually(async () => (await owners()).every((owner) => owner === null));
    });

    it('starts with a warning while a majority serves, and refuses to start without one', async () => {
      const notices: string[] = [];
      const start = (backend: LockBackend) =>
        openBackend(backend, { report: ({ message }) => notices.push(message) }).start?.();
      await nodes.servers[0]?.stop();
      await start(open().backend);
      expect(notices).toContainEqual(expect.stringContaining('Redlock works with the other nodes'));
      await Promise.all(nodes.servers.slice(1, 3).map((server) => server.stop()));
      await expect(start(open().backend)).rejects.toThrow('3 of 5 nodes failed, but 3 must agree');
    });
  });

  it('needs both of two nodes', async () => {
    const backend = openBackend(redlock(nodes.urls.slice(0, 2), { anyCount: true }));
    const { locks, close } = testServices({ backend, cache: false, shutdownGrace: 0 });
    closing.push(close);
    await locks.withLock('before', async () => {});
    await nodes.servers[0]?.stop();
    await expect(locks.acquire('after', { wait: 0 })).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    await eventually(async () => (await ownerAt(nodes.servers[1]?.port ?? 0, 'after')) === null);
  });

  it('leaves nothing at a minority where another client has the name at the others', async () => {
    const { locks } = open();
    await locks.withLock('before', async () => {});
    for (const { port } of nodes.servers.slice(0, 3)) {
      const client = new Redis(port);
      await client.set('lock:{taken}', 'another client', 'PX', 60_000);
      client.disconnect();
    }
    await expect(locks.acquire('taken', { wait: 0 })).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await eventually(async () => (await ownersOf('taken')).slice(3).every((owner) => owner === null));
  });

  describe('votes that come late', () => {
    it('are withdrawn at nodes that answer after the request was given up', async () => {
      const { backend } = open({ nodeTimeout: '100ms' });
      await acquire(backend, 'warm');
      for (const proxy of nodes.proxies.slice(0, 3)) proxy.hold('reply');
      await expect(acquire(backend, 'late', ticketOf(), 120_000)).rejects.toThrow('must agree');
      for (const proxy of nodes.proxies.slice(0, 3)) proxy.heal();
      await eventually(async () => (await ownersOf('late')).every((owner) => owner === null));
    });

    it('make no grant when they come after the lease has ended', async () => {
      const { backend } = open({ nodeTimeout: '5s' });
      await acquire(backend, 'warm');
      for (const proxy of nodes.proxies.slice(0, 3)) proxy.hold('reply');
      const late = acquire(backend, 'late', ticketOf(), 200);
      await new Promise((resolve) => setTimeout(resolve, 300));
      for (const proxy of nodes.proxies.slice(0, 3)) proxy.heal();
      await expect(late).rejects.toThrow('when the lease had ended');
    });

    it('are withdrawn when the ticket was released before them', async () => {
      const { backend } = open();
      await acquire(backend, 'warm');
      nodes.servers[0]?.process.pause();
      const ticket = ticketOf();
      expect(await acquire(backend, 'released', ticket, 120_000)).toMatchObject({ status: 'granted' });
      await new Promise((resolve, reject) => {
        backend.release({ name: 'released', ticket }).then(resolve, reject);
      });
      nodes.servers[0]?.process.resume();
      await eventually(async () => (await ownersOf('released')).every((owner) => owner === null));
    });
  });

  it('counts no vote of a node that has yet to free what it granted to the same ticket', async () => {
    const { backend } = open();
    for (const { port } of nodes.servers.slice(0, 2)) {
      const other = new Redis(port);
      await other.set('lock:{busy}', 'other:1', 'PX', 120_000);
      other.disconnect();
    }
    await acquire(backend, 'warm');
    await Promise.all(nodes.servers.slice(3).map((server) => server.stop()));
    const ticket = ticketOf();
    const busy = { status: 'busy', owner: 'other:1' };
    expect(await acquire(backend, 'busy', ticket)).toMatchObject(busy);
    nodes.proxies[2]?.hold('reply');
    expect(await acquire(backend, 'busy', ticket)).toMatchObject(busy);
    nodes.proxies[2]?.heal();
    await eventually(async () => {
      const owner = new Redis(nodes.servers[2]?.port ?? 0);
      const free = (await owner.exists('lock:{busy}')) === 0;
      owner.disconnect();
      return free;
    });
  });

  it('gives the lock to nodes that were away, at the next renewal', async () => {
    const { locks } = open();
    await locks.withLock('warm', async () => {});
    nodes.proxies[0]?.refuse();
    await eventually(() => locks.withLock('up', async () => (await ownersOf('up'))[0] === null));
    await locks.withLock('up', { ttl: 3_000 }, async () => {
      nodes.proxies[0]?.accept();
      await eventually(async () => (await ownersOf('up')).every((owner) => owner !== null));
    });
  });

  describe('a node that has restarted without its data', () => {
    it('grants nothing until the leases from before have ended', async () => {
      const { backend } = open({ restartDelay: '3s' });
      expect(await acquire(backend, 'held', 'first:1', 60_000)).toMatchObject({ status: 'granted' });
      const other = open({ restartDelay: '3s' }).backend;
      await acquire(other, 'warm', ticketOf(), 1_000);
      await Promise.all([0, 1, 2].map((index) => nodes.restart(index)));
      // Three empty nodes are a majority: without the delay, the second holder would be let in.
      await eventually(async () => {
        const message = await acquire(other, 'held', ticketOf(), 1_000).then(
          ({ status }) => `answered ${status}`,
          (error: Error) => error.message,
        );
        expect(message).not.toBe('answered granted');
        return message.includes('has restarted, and grants nothing for');
      });
      await eventually(async () =>
        acquire(other, 'another', ticketOf(), 1_000).then(
          ({ status }) => status === 'granted',
          () => false,
        ),
      );
    });

    it('is not trusted by the time that its clock gives, which may have been set forward', async () => {
      for (const proxy of nodes.proxies) proxy.alterReplies(withUptime(9_999));
      const { backend } = open();
      expect(await acquire(backend, 'held', 'first:1', 60_000)).toMatchObject({ status: 'granted' });
      await Promise.all([0, 1, 2].map((index) => nodes.restart(index)));
      await eventually(async () => {
        const message = await acquire(backend, 'held', ticketOf(), 1_000).then(
          ({ status }) => `answered ${status}`,
          (error: Error) => error.message,
        );
        expect(message).not.toBe('answered granted');
        return message.includes('has restarted, and grants nothing for');
      });
    });

    it('is taken for a new installation by a process that starts after all nodes have restarted at once', async () => {
      expect(await acquire(open().backend, 'held', 'first:1', 60_000)).toMatchObject({ status: 'granted' });
      await Promise.all(nodes.servers.map((_, index) => nodes.restart(index)));
      await eventually(async () => {
        const answered = acquire(open().backend, 'held', ticketOf(), 1_000);
        return answered.then(
          ({ status }) => status === 'granted',
          () => false,
        );
      });
    });

    it('is noticed by a process that meets it for the first time', async () => {
      // Nodes that start within 10 s of each other count as a fresh installation.
      for (const proxy of nodes.proxies.slice(3)) proxy.alterReplies(withUptime(600));
      await Promise.all([0, 1, 2].map((index) => nodes.restart(index)));
      await expect(acquire(open().backend, 'held')).rejects.toThrow('has restarted, and grants nothing for');
      expect(await acquire(open({ restartDelay: false }).backend, 'free')).toMatchObject({ status: 'granted' });
    });
  });
});

describe('leases', () => {
  const NODES = 5;
  const TTL = 2_000;

  let nodes: RedlockNodes;
  const closing: (() => Promise<void>)[] = [];

  beforeEach(async () => {
    nodes = await startRedlockNodes(NODES);
  });
  afterEach(async () => {
    for (const { process } of nodes.servers) process.resume();
    await Promise.all(closing.splice(0).map((close) => close()));
    await nodes.stop();
  });

  async function open(urls = nodes.urls): Promise<LockService> {
    const { locks, close } = testServices({ backend: redlock(urls), cache: false, shutdownGrace: 0 });
    closing.push(close);
    await locks.withLock('warm', async () => {});
    return locks;
  }

  /** One node is dead, another one is paused. */
  async function loseTwo(): Promise<void> {
    await nodes.servers[0]?.stop();
    nodes.servers[1]?.process.pause();
  }

  it('renews a lock for as long as three of five nodes answer, and loses it in time when two do', async () => {
    const lock = await (await open()).acquire('order', { ttl: TTL });
    // The same nodes, past the proxies.
    const others = await open(nodes.servers.map(({ url }) => url));
    await loseTwo();
    await sleep(2 * TTL);
    expect(lock.held).toBe(true);
    expect(lock.signal.aborted).toBe(false);
    nodes.proxies[2]?.refuse();
    expect(lock.remaining()).toBeLessThanOrEqual(TTL);
    const next = await others.acquire('order', { wait: 60_000 });
    expect(lock.signal.aborted).toBe(true);
    expect(lock.held).toBe(false);
    await next.release();
    await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
  });

  it('frees at a node that was away what was held there meanwhile, also more than a thousand locks', async () => {
    // Without the proxies, which share the event loop.
    const locks = await open(nodes.servers.map(({ url }) => url));
    const held: Lock[] = [];
    while (held.length < 1_500) {
      const some = Array.from({ length: 100 }, (_, order) => `order:${held.length + order}`);
      held.push(...(await Promise.all(some.map((name) => locks.acquire(name, { ttl: 180_000, wait: 60_000 })))));
    }
    const client = new Redis(nodes.servers[1]?.port ?? 0);
    closing.push(async () => client.disconnect());
    await eventually(async () => (await client.keys('lock:{order:*}')).length === held.length);
    nodes.servers[1]?.process.pause();
    // Its silence is known before the releases: they are not sent to it.
    await locks.withLock('probe', async () => {});
    await sleep(1_000);
    await Promise.all(held.map((lock) => lock.release()));
    nodes.servers[1]?.process.resume();
    await eventually(async () => (await client.keys('lock:{order:*}')).length === 0);
  });
});
