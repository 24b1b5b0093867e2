import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { redlock } from 'nest-redis-lock/redlock';
import type { LockBackend, RenewAnswer } from 'nest-redis-lock';
import { eventually } from '../../support/eventually.js';
import { startRedlockNodes, type RedlockNodes } from '../../support/servers/redlock-nodes.js';

const NODES = 5;
const NAME = 'turns';
const TTL = 20_000;

let nodes: RedlockNodes;
let clients: Redis[];
const backends: LockBackend[] = [];

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

function open(): LockBackend {
  const backend = redlock(nodes.urls);
  backends.push(backend);
  return backend;
}

/** A process with a clock that is `ms` ahead of the others. */
function openAhead(ms: number): LockBackend {
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
async function asks(backend: LockBackend, ticket: string) {
  return new Promise<Awaited<ReturnType<LockBackend['acquire']>>>((resolve, reject) => {
    backend.acquire({ names: [NAME], ticket, ttl: TTL, waits: true }).then(resolve, reject);
  });
}

async function passesOn(backend: LockBackend, ticket: string, again?: string) {
  return new Promise<Awaited<ReturnType<LockBackend['release']>>>((resolve, reject) => {
    backend.release({ names: [NAME], ticket, ...(again && { again }) }).then(resolve, reject);
  });
}

async function renews(backend: LockBackend, ticket: string) {
  const [renewal] = backend.renew([{ names: [NAME], ticket, ttl: TTL }]);
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
  async function grantedLate(backend: LockBackend, ticket: string): Promise<void> {
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
  expect(await asks(last, c)).toMatchObject({ status: 'busy', owner: a });
  await passesOn(first, a);
  expect(await asks(last, c)).toMatchObject({ status: 'busy', owner: '' });
  expect(await asks(ahead, b)).toMatchObject({ status: 'granted', waiting: 1 });
});
