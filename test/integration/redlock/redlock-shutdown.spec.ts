import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { redlock } from 'nest-redis-lock/redlock';
import { testServices } from 'nest-redis-lock/testing';
import { eventually } from '../../support/eventually.js';
import { startRedlockNodes, type RedlockNodes } from '../../support/servers/redlock-nodes.js';

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
  const backend = redlock(nodes.urls);
  const ticketOf = () => `${randomUUID()}:1`;
  const acquire = (name: string, ticket = ticketOf()) =>
    new Promise((resolve, reject) => {
      backend.acquire({ names: [name], ticket, ttl: 60_000, waits: true }).then(resolve, reject);
    });
  const release = (name: string, ticket: string) =>
    new Promise((resolve, reject) => {
      backend.release({ names: [name], ticket }).then(resolve, reject);
    });
  const ticket = ticketOf();
  // The nodes know the scripts.
  await acquire('before', ticket);
  await release('before', ticket);
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
