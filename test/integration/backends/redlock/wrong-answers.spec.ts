import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import type { Pending, RenewAnswer } from 'nest-redis-lock/backend';
import { redlock } from 'nest-redis-lock/redlock';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { type RedlockNodes, startRedlockNodes } from '../../../support/servers/redlock-nodes.js';
import { openBackend, type OpenBackend } from '../../../support/open-backend.js';

let nodes: RedlockNodes;
let backend: OpenBackend;
let name: string;
let ticket: string;
const FOREIGN = 'foreign:1';

beforeAll(async () => {
  nodes = await startRedlockNodes(3);
});
afterAll(async () => {
  await nodes.stop();
});
beforeEach(async () => {
  name = randomUUID();
  ticket = `${randomUUID()}:1`;
  backend = await opened(nodes.proxies);
});
afterEach(async () => {
  answer(undefined);
  await backend.close?.();
});

async function opened(proxies: readonly FaultProxy[]): Promise<OpenBackend> {
  const made = openBackend(redlock(proxies.map(({ port }) => `redis://127.0.0.1:${port}`)));
  // What is sent at the start is answered by now.
  const first = { name: randomUUID(), ticket: `${randomUUID()}:1` };
  await made.acquire({ ...first, ttl: 20_000 });
  await made.release(first);
  return made;
}

/** Each node answers `instead` of what it would, as a proxy or a client that has mixed up the answers. */
function answer(instead: string | undefined, proxies: readonly FaultProxy[] = nodes.proxies): void {
  for (const proxy of proxies) {
    proxy.alterReplies((reply) => (instead === undefined ? reply : Buffer.from(instead)));
  }
}

/** What the backend rejects with. */
function failureOf(call: Pending<unknown>): Promise<unknown> {
  return new Promise((resolve) => {
    call.then((answered) => resolve({ answered }), resolve);
  });
}

/** What the backend answers, once it has replaced the connections that mixed up their replies. */
function answerOf<T extends object>(call: () => Pending<T>): Promise<T> {
  return eventually(() => promiseOf(call()).catch(() => undefined));
}

function promiseOf<T>(pending: Pending<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    pending.then(resolve, reject);
  });
}

const NO_ANSWERS = [
  '$-1\r\n',
  '+OK\r\n',
  ':-5\r\n',
  '*0\r\n',
  '*1\r\n$-1\r\n',
  '*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n',
];

// Side by side: connections whose first replies were wrong ones stay silent until they are replaced.
it.concurrent.each(NO_ANSWERS)('%j tells nothing of a lock that is held', async (instead) => {
  const proxies = await Promise.all(nodes.servers.map(({ port }) => FaultProxy.start(port)));
  const of = await opened(proxies);
  const held = { name: randomUUID(), ticket: `${randomUUID()}:1`, ttl: 20_000 };
  await of.acquire(held);
  answer(instead, proxies);
  const calls: (() => Pending<unknown>)[] = [
    () => of.renew([held])[0] as Pending<unknown>,
    () => of.inspect(held),
    () => of.mint({ ...held, leastToken: 1 }),
  ];
  for (const call of calls) {
    expect(await failureOf(call())).toMatchObject({ name: 'NoQuorum' });
  }
  answer(undefined, proxies);
  const renewal = await answerOf(() => of.renew([held])[0] as Pending<RenewAnswer>);
  expect(renewal).toMatchObject({ status: 'renewed' });
  await of.close?.();
  await Promise.all(proxies.map((proxy) => proxy.stop()));
});

describe.each(NO_ANSWERS)('%j', (instead) => {
  it('grants no lock that another owner has', async () => {
    for (const { port } of nodes.servers) {
      const client = new Redis(port);
      await client.set(`lock:{${name}}`, FOREIGN, 'PX', 60_000);
      client.disconnect();
    }
    answer(instead);
    const request = { name, ticket, ttl: 20_000 };
    expect(await failureOf(backend.acquire(request))).toMatchObject({ name: 'NoQuorum' });
    answer(undefined);
    const next = await answerOf(() => backend.acquire({ ...request, ticket: `${randomUUID()}:2` }));
    expect(next).toMatchObject({ status: 'busy' });
  });

  it('is no answer to a release, which is sent again', async () => {
    await backend.acquire({ name, ticket, ttl: 20_000 });
    answer(instead);
    expect(await failureOf(backend.release({ name, ticket }))).toMatchObject({ name: 'NoQuorum' });
    answer(undefined);
    await answerOf(() => backend.release({ name, ticket }));
    const next = await answerOf(() => backend.acquire({ name, ticket: `${randomUUID()}:2`, ttl: 20_000 }));
    expect(next).toMatchObject({ status: 'granted' });
  });
});
