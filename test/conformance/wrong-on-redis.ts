import { memory, redis } from 'nest-redis-lock';
import type { BeatRequest, EnqueueRequest, ReleaseRequest, RequeueRequest } from 'nest-redis-lock/backend';
import { Redis } from 'ioredis';
import type { LockBackendWorld } from 'nest-redis-lock/testing';
import { replacing, withMembers } from '../support/open-backend.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { otherProcess } from './conforms.js';
import type { Heard, Lies, Wrong } from './wrong-backends.js';

const servers: Promise<RedisServer>[] = [];

afterAll(async () => {
  await Promise.all(servers.map(async (server) => (await server).stop()));
});

/** Processes at one Redis, whose backends lie. */
function onRedis(lies: Lies = () => ({}), heard?: Heard, forked = 'redis'): () => LockBackendWorld {
  return () => {
    const server = startRedisServer();
    servers.push(server);
    const cut = async () => {
      const admin = new Redis((await server).port);
      for (const type of ['normal', 'pubsub']) await admin.call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes');
      admin.disconnect();
    };
    return {
      open: async () => replacing(redis({ host: '127.0.0.1', port: (await server).port }), lies, heard),
      faults: { cut, fork: async () => otherProcess(forked, (await server).port) },
    };
  };
}

/** Keeps its locks in the process. */
function inTheProcess(): LockBackendWorld {
  const shared = memory();
  return { open: () => shared, without: ['queue'], faults: { fork: () => otherProcess('memory') } };
}

/** Hands a name to a waiter for an hour. */
const trustsWaiters: Lies = (honest) => ({
  queue: withMembers(honest.queue!, {
    enqueue: (request: EnqueueRequest) =>
      honest.queue!.enqueue({ ...request, ...(request.claim !== undefined && { claim: 3_600_000 }) }),
  }),
});

/** Queues a ticket of which it does not know, when that gives a sign of life. */
const queuesByHeartbeat: Lies = (honest) => ({
  queue: withMembers(honest.queue!, {
    beat: (request: BeatRequest) => honest.queue!.enqueue({ ...request, claim: request.ttl }),
  }),
});

/** Keeps the name for the next of its own callers, although others wait elsewhere. */
const keepsItsTurn: Lies = (honest) => ({
  queue: withMembers(honest.queue!, {
    requeue: async ({ name, ticket, claim: remaining }: RequeueRequest) => {
      const tokens = await honest.mint({ name, ticket, leastToken: 0 });
      return tokens
        ? { status: 'granted', tokens, remaining, waiting: undefined }
        : { status: 'not-owner', resent: false };
    },
  }),
});

/** Leaves a ticket in the queue that was given up. */
const forgetsNoWaiter: Lies = (honest) => ({
  release: async (request: ReleaseRequest) => {
    const owner = (await honest.inspect(request))?.owner;
    return owner === request.ticket ? honest.release(request) : { status: 'taken', resent: false };
  },
});

/** Each at a Redis of its own. */
export const WRONG_ON_REDIS: readonly Wrong[] = [
  {
    guarantee: 'waiting',
    what: 'lets a waiter that has crashed keep what it was handed',
    world: onRedis(trustsWaiters),
    fails: 'lets the next ticket in after a waiter that has crashed',
    saying: /^Not within 30000 ms: .* is granted/,
    honest: onRedis(),
  },
  {
    guarantee: 'connection',
    what: 'does not tell that messages arrive again',
    world: onRedis(undefined, (module) => ({ ...module, reconnected: () => {} })),
    fails: 'says that messages arrive again after every connection was cut',
    saying: /the backend says that messages arrive again/,
    honest: onRedis(),
  },
  {
    guarantee: 'connection',
    what: 'does not tell that it is connected again after a cut',
    world: onRedis(undefined, (module) => ({ ...module, connected: () => {} })),
    fails: 'says that it is connected again (cut)',
    saying: /the backend says that it is connected/,
    honest: onRedis(),
  },
  {
    guarantee: 'identity',
    what: 'keeps its locks in the process',
    world: inTheProcess,
    fails: 'keeps its locks where other processes find them',
    saying: /two processes hold the name/,
    honest: onRedis(),
  },
  {
    guarantee: 'waiting',
    what: 'queues a ticket by a heartbeat',
    world: onRedis(queuesByHeartbeat),
    fails: 'never queues a ticket by a heartbeat, nor one that must not wait',
    saying: /'busy'/,
    honest: onRedis(),
  },
  {
    guarantee: 'waiting',
    what: 'keeps the name for its own callers after their turn',
    world: onRedis(keepsItsTurn),
    fails: 'requeues: another process comes first, then this one again',
    saying: /'granted'/,
    honest: onRedis(),
  },
  {
    guarantee: 'waiting',
    what: 'leaves a ticket in the queue that was given up',
    world: onRedis(forgetsNoWaiter),
    fails: 'passes over a ticket that was given up',
    saying: /'busy'/,
    honest: onRedis(),
  },
  {
    guarantee: 'claim',
    what: 'says that it writes at once, and writes later',
    world: onRedis(undefined, undefined, 'redis-written-later'),
    fails: 'renews a short lease before its next holder runs, who may block the event loop',
    saying: /lost/,
    honest: onRedis(),
  },
];
