import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Lock, LockService } from 'nest-redis-lock';
import { redlock } from 'nest-redis-lock/redlock';
import { testServices } from 'nest-redis-lock/testing';
import { eventually } from '../../support/eventually.js';
import { startRedlockNodes, type RedlockNodes } from '../../support/servers/redlock-nodes.js';

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
  await loseTwo();
  await sleep(2 * TTL);
  expect(lock.held).toBe(true);
  expect(lock.signal.aborted).toBe(false);
  const left = performance.now();
  nodes.proxies[2]?.refuse();
  await new Promise((resolve) => lock.signal.addEventListener('abort', resolve));
  expect(performance.now() - left).toBeLessThanOrEqual(TTL + 500);
  expect(lock.held).toBe(false);
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
