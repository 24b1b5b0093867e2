import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from './servers/redis-server.js';
import { asBusy, asGranted, CLAIM, QueuePeer } from './queue-peer.js';

export let server: RedisServer;

export let plain: Redis;

export let name: string;

let peers: QueuePeer[];

export let foreign: string[];

export async function peer(prefix?: string): Promise<QueuePeer> {
  const made = await new QueuePeer(plain, prefix).listen();
  peers.push(made);
  return made;
}

/** Lives and asks, but no message reaches it. */
export function unreachable(): QueuePeer {
  const made = new QueuePeer(plain);
  peers.push(made);
  return made;
}

export const owner = (of = name) => plain.get(`lock:{${of}}`);

export const leaseLeft = (of = name) => plain.pttl(`lock:{${of}}`);

export const queued = (of = name) => plain.lrange(`lock:{${of}}:queue`, 0, -1);

export const waiters = (of = name) => plain.hkeys(`lock:{${of}}:waiters`);

/** What the end of a lease does. */
export const expire = (of = name) => plain.del(`lock:{${of}}`);

/** As if nothing had been heard of the waiter for too long. */
export const outlive = (ticket: string) => plain.hset(`lock:{${name}}:waiters`, ticket, `1:0:${CLAIM}:${name}`);

/** One peer owns the name, and the other waits for it. */
export async function ownerAndWaiter() {
  const [b, a] = [await peer(), await peer()];
  const [b1, a1] = [b.ticket(), a.ticket()];
  asGranted(await b.enqueue(name, b1));
  asBusy(await a.enqueue(name, a1));
  return { a, a1, b, b1 };
}

/**
 * The Redis side of the hand-over: tests send each command by hand, also twice, late and out of order (the rules R1 to
 * R17 stand in docs/protocol.md). Starts a server, gives each test an unused name, and checks that all keys of ours
 * expire.
 */
export function startQueueOnRedis(): void {
  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
  });
  beforeEach(() => {
    name = randomUUID();
    peers = [];
    foreign = [];
  });
  afterEach(async () => {
    // Whatever a test did: no key of ours stays for ever.
    for (const key of await plain.keys('*')) {
      if (!foreign.includes(key))
        expect({ key, expires: (await plain.pttl(key)) !== -1 }).toEqual({ key, expires: true });
    }
    for (const { backend } of peers) await backend.close();
    await plain.flushall();
  });
  afterAll(async () => {
    plain.disconnect();
    await server.stop();
  });
}
