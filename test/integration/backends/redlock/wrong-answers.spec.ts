import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import type { Pending, RenewAnswer } from 'nest-redis-lock/backend';
import { redlock } from 'nest-redis-lock/redlock';
import { eventually } from '../../../support/eventually.js';
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
  backend = openBackend(redlock(nodes.urls));
  name = randomUUID();
  ticket = `${randomUUID()}:1`;
  // What is sent at the start is answered by now.
  await backend.acquire({ name: 'start', ticket, ttl: 20_000 });
  await backend.release({ name: 'start', ticket });
});
afterEach(async () => {
  answer(undefined);
  await backend.close?.();
});

/** Each node answers `instead` of what it would, as a proxy or a client that has mixed up the answers. */
function answer(instead: string | undefined): void {
  for (const proxy of nodes.proxies) {
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

  it('tells nothing of a lock that is held', async () => {
    await backend.acquire({ name, ticket, ttl: 20_000 });
    answer(instead);
    const calls: (() => Pending<unknown>)[] = [
      () => backend.renew([{ name, ticket, ttl: 20_000 }])[0] as Pending<unknown>,
      () => backend.inspect({ name }),
      () => backend.mint({ name, ticket, leastToken: 1 }),
    ];
    for (const call of calls) {
      expect(await failureOf(call())).toMatchObject({ name: 'NoQuorum' });
    }
    answer(undefined);
    const renewal = await answerOf(() => backend.renew([{ name, ticket, ttl: 20_000 }])[0] as Pending<RenewAnswer>);
    expect(renewal).toMatchObject({ status: 'renewed' });
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
