import { once } from 'node:events';
import { Redis } from 'ioredis';
import { testServices } from 'nest-redis-lock/testing';
import { redlock } from 'nest-redis-lock/redlock';
import type { LockService } from 'nest-redis-lock';
import { eventually } from '../../support/eventually.js';
import { startRedlockNodes, type RedlockNodes } from '../../support/servers/redlock-nodes.js';

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
