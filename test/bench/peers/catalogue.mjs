import * as adapters from './adapters.mjs';
import { connectorOf } from './connecting.mjs';

/**
 * Who is measured. An `adapter({ port, modules })` answers `run(key, body)`, which takes the lock, waiting
 * for it where it must, runs the body and gives the lock back.
 *
 * `packages` are the peer and what it is built on, whose versions matter to the figures. `only` says what a peer is
 * limited to: `raw` does not wait, and `mutex` is not shared between processes.
 */
export const PEERS = {
  raw: { adapter: adapters.raw, packages: ['ioredis'], only: 'uncontended' },
  mutex: { adapter: adapters.mutex, packages: [], only: 'withinProcess' },
  redlock: { adapter: adapters.redlock, packages: ['redlock', 'ioredis'] },
  '@sesamecare-oss/redlock': { adapter: adapters.sesamecareRedlock, packages: ['@sesamecare-oss/redlock', 'ioredis'] },
  'redlock-universal': { adapter: adapters.redlockUniversal, packages: ['redlock-universal', 'ioredis'] },
  'redis-semaphore': { adapter: adapters.redisSemaphore, packages: ['redis-semaphore', 'ioredis'] },
  '@redis-kit/lock': { adapter: adapters.redisKit, packages: ['@redis-kit/lock', 'redis'] },
  'simple-redis-mutex': { adapter: adapters.simpleRedisMutex, packages: ['simple-redis-mutex', 'redis'] },
  murlock: { adapter: adapters.murlock, packages: ['murlock', 'redis', '@nestjs/core'] },
  ours: { adapter: adapters.ours, packages: [], own: true },
};

export const connectPeer = connectorOf(PEERS);
