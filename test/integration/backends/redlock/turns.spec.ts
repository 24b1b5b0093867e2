import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { LockBackend, LockService } from 'nest-redis-lock';
import type { Notice, RenewAnswer } from 'nest-redis-lock/backend';
import { redlock, type RedlockOptions } from 'nest-redis-lock/redlock';
import { testServices } from 'nest-redis-lock/testing';
import { eventually } from '../../../support/eventually.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';
import { type RedlockNodes, startRedlockNodes } from '../../../support/servers/redlock-nodes.js';
import { openBackend, type OpenBackend } from '../../../support/open-backend.js';

describe('turns', () => {
  const NODES = 5;
  const NAME = 'turns';
  const TTL = 20_000;

  let nodes: RedlockNodes;
  let clients: Redis[];
  const backends: OpenBackend[] = [];

  beforeAll(async () => {
    nodes = await startRedlockNodes(NODES);
    clients = nodes.servers.map(({ port }) => new Redis(port));
  });
  afterEach(async () => {
    await Promise.all(backends.splice(0).map((backend) => backend.close()));
    await Promise.all(clients.map((client) => client.flushall()));
  });
  afterAll(async () => {
    for (const client of clients) client.disconnect();
    await nodes.stop();
  });

  function open(): OpenBackend {
    const backend = openBackend(redlock(nodes.urls));
    backends.push(backend);
    return backend;
  }

  /** A process with a clock that is `ms` ahead of the others. */
  function openAhead(ms: number): OpenBackend {
    const ahead = performance.timeOrigin + ms;
    Object.defineProperty(performance, 'timeOrigin', { value: ahead, configurable: true });
    try {
      return open();
    } finally {
      Reflect.deleteProperty(performance, 'timeOrigin');
    }
  }

  const ticketOf = (): string => `${randomUUID()}:1`;

  /** The ticket asks, and waits where it is refused. */
  async function asks(backend: OpenBackend, ticket: string) {
    return new Promise<Awaited<ReturnType<OpenBackend['acquire']>>>((resolve, reject) => {
      backend.acquire({ name: NAME, ticket, ttl: TTL, waits: true }).then(resolve, reject);
    });
  }

  async function passesOn(backend: OpenBackend, ticket: string, again?: string) {
    return new Promise<Awaited<ReturnType<OpenBackend['release']>>>((resolve, reject) => {
      backend.release({ name: NAME, ticket, ...(again && { again }) }).then(resolve, reject);
    });
  }

  async function renews(backend: OpenBackend, ticket: string) {
    const [renewal] = backend.renew([{ name: NAME, ticket, ttl: TTL }]);
    return new Promise<RenewAnswer>((resolve, reject) => {
      renewal?.then(resolve, reject);
    });
  }

  /** Resolves when these tickets wait, as each node has it: the last of them may answer later than their majority. */
  async function waitersBecome(expected: readonly string[][]): Promise<void> {
    await eventually(async () => {
      const waiters = await Promise.all(clients.map((client) => client.hkeys(`lock:{${NAME}}:wanted`)));
      return waiters.every((tickets, node) => tickets.join() === expected[node]?.join());
    });
  }

  /** Gives all waiters their places for a minute: on a busy machine, their next heartbeats may come too late. */
  async function keepPlaces(): Promise<void> {
    const wanted = `lock:{${NAME}}:wanted`;
    for (const client of clients) {
      for (const [ticket, entry] of Object.entries(await client.hgetall(wanted))) {
        await client.hset(wanted, ticket, entry.replace(/\d+$/, String(Date.now() + 60_000)));
      }
      await client.persist(wanted);
    }
  }

  describe('a process whose turn has ended', () => {
    it('waits from that moment: the next owner learns of it, and newcomers come after it', async () => {
      const [first, second] = [open(), open()];
      const [a, b, again] = [ticketOf(), ticketOf(), ticketOf()];
      expect(await asks(first, a)).toMatchObject({ status: 'granted', waiting: 0 });
      expect(await asks(second, b)).toMatchObject({ status: 'busy', owner: a });
      expect(await passesOn(first, a, again)).toMatchObject({ status: 'released' });
      expect(await asks(second, b)).toMatchObject({ status: 'granted', waiting: 1 });
      await passesOn(second, b);
      expect(await asks(second, ticketOf())).toMatchObject({ status: 'busy', owner: '' });
      expect(await asks(first, again)).toMatchObject({ status: 'granted', waiting: 1 });
    });

    it('waits under its new ticket only, also at nodes that had refused the old one', async () => {
      const backend = open();
      const minority = clients.slice(3);
      await Promise.all(minority.map((client) => client.set(`lock:{${NAME}}`, 'another:1', 'PX', TTL)));
      const [ticket, again] = [ticketOf(), ticketOf()];
      expect(await asks(backend, ticket)).toMatchObject({ status: 'granted' });
      await waitersBecome([[], [], [], [ticket], [ticket]]);
      expect(await passesOn(backend, ticket, again)).toMatchObject({ status: 'released' });
      await waitersBecome([[again], [again], [again], [], []]);
    });

    it('does not wait where it had lost the lock', async () => {
      const backend = open();
      expect(await passesOn(backend, ticketOf(), ticketOf())).toMatchObject({ status: 'gone' });
      await waitersBecome([[], [], [], [], []]);
    });
  });

  it('tells an owner that reserves further tokens who waits', async () => {
    const [first, second] = [open(), open()];
    const owner = ticketOf();
    await asks(first, owner);
    expect(await first.mint({ name: NAME, ticket: owner, leastToken: 0 })).toMatchObject({ waiting: 0 });
    await asks(second, ticketOf());
    expect(await first.mint({ name: NAME, ticket: owner, leastToken: 0 })).toMatchObject({ waiting: 1 });
  });

  describe('an owner that some nodes had refused', () => {
    /** The ticket owns the name at all nodes; the last two have a mark of its wait, which does not end. */
    async function grantedLate(backend: OpenBackend, ticket: string): Promise<void> {
      const minority = clients.slice(3);
      await Promise.all(minority.map((client) => client.set(`lock:{${NAME}}`, 'another:1', 'PX', TTL)));
      expect(await asks(backend, ticket)).toMatchObject({ status: 'granted' });
      await Promise.all(minority.map((client) => client.set(`lock:{${NAME}}`, ticket, 'PX', TTL)));
      for (const client of minority) {
        await client.hset(`lock:{${NAME}}:wanted`, ticket, '1:9999999999999');
        await client.persist(`lock:{${NAME}}:wanted`);
      }
      // A majority needs the nodes with the mark.
      await Promise.all(clients.slice(0, 2).map((client) => client.set(`lock:{${NAME}}`, 'another:1', 'PX', TTL)));
    }

    it('is not among those who wait when it renews its lease', async () => {
      const backend = open();
      const ticket = ticketOf();
      await grantedLate(backend, ticket);
      expect(await renews(backend, ticket)).toMatchObject({ status: 'renewed', waiting: 0 });
      await waitersBecome([[], [], [], [], []]);
    });

    it('is not among those who wait when it reserves further tokens', async () => {
      const backend = open();
      const ticket = ticketOf();
      await grantedLate(backend, ticket);
      expect(await backend.mint({ name: NAME, ticket, leastToken: 0 })).toMatchObject({ waiting: 0 });
      await waitersBecome([[], [], [], [], []]);
    });
  });

  it('keeps the order of arrival between processes of which the clock of one is ahead', async () => {
    const [first, ahead, last] = [open(), openAhead(5_000), open()];
    const [a, b, c, earlier] = [ticketOf(), ticketOf(), ticketOf(), ticketOf()];
    await asks(first, a);
    // It knows the time of the nodes, too.
    await asks(last, earlier);
    await passesOn(last, earlier);
    // Its first request states its own time; from the answer, it knows that of the nodes.
    for (let heartbeat = 0; heartbeat < 2; heartbeat++) {
      expect(await asks(ahead, b)).toMatchObject({ status: 'busy', owner: a });
    }
    await keepPlaces();
    // What a process knows of their time may be wrong by as long as a request took.
    await sleep(300);
    expect(await asks(last, c)).toMatchObject({ status: 'busy', owner: a });
    await keepPlaces();
    await passesOn(first, a);
    expect(await asks(last, c)).toMatchObject({ status: 'busy', owner: '' });
    expect(await asks(ahead, b)).toMatchObject({ status: 'granted', waiting: 1 });
  });
});

describe('refusals', () => {
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

  function open(
    urls: readonly string[] = servers.map(({ url }) => url),
    options: RedlockOptions = {},
  ): { backend: OpenBackend; locks: LockService } {
    const backend = openBackend(redlock(urls, options));
    const { locks, close } = testServices({ backend, cache: false, shutdownGrace: 0 });
    closing.push(close);
    return { backend, locks };
  }

  async function warningOf(backend: LockBackend): Promise<string> {
    const warnings: string[] = [];
    const report = ({ level, message }: Notice) => void (level === 'warn' && warnings.push(message));
    await openBackend(backend, { report }).start?.();
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
    [
      'denies the scripts',
      (node) => node.acl('SETUSER', 'default', '-evalsha', '-eval'),
      'NOPERM',
      'grant the ACL user',
    ],
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
      // It started after the others.
      const { backend, locks } = open([servers[0]?.url ?? '', servers[1]?.url ?? '', member.url], {
        restartDelay: false,
      });
      expect(await warningOf(backend)).toMatch(`127.0.0.1:${member.port} refuses what locks write: CLUSTERDOWN`);
      await locks.withLock('order', async () => {});
      await plain[1]?.config('SET', 'maxmemory', '1');
      const error = (await locks.tryAcquire('another').catch((failure: unknown) => failure)) as Error;
      expect(error.message).toMatch(new RegExp(`127.0.0.1:${member.port}: CLUSTERDOWN`));
    });
  });
});
