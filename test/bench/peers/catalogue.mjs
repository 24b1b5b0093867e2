import { connectorOf } from './connector.mjs';

/**
 * Who is measured. An adapter's `connect({ port, modules })` answers `run(key, body)`, which takes the lock, waiting
 * for it where it must, runs the body and gives the lock back.
 *
 * `packages` are the peer and what it is built on, whose versions matter to the figures. `only` says what a peer is
 * limited to: `raw` does not wait, and `mutex` is not shared between processes.
 */
export const PEERS = {
  raw: { adapter: 'raw', packages: ['ioredis'], only: 'uncontended' },
  mutex: { adapter: 'mutex', packages: [], only: 'withinProcess' },
  redlock: { adapter: 'redlock', packages: ['redlock', 'ioredis'] },
  '@sesamecare-oss/redlock': { adapter: 'sesamecare-redlock', packages: ['@sesamecare-oss/redlock', 'ioredis'] },
  'redlock-universal': { adapter: 'redlock-universal', packages: ['redlock-universal', 'ioredis'] },
  'redis-semaphore': { adapter: 'redis-semaphore', packages: ['redis-semaphore', 'ioredis'] },
  '@redis-kit/lock': { adapter: 'redis-kit', packages: ['@redis-kit/lock', 'redis'] },
  'simple-redis-mutex': { adapter: 'simple-redis-mutex', packages: ['simple-redis-mutex', 'redis'] },
  murlock: { adapter: 'murlock', packages: ['murlock', 'redis', '@nestjs/core'] },
  ours: { adapter: 'ours', packages: [] },
};

export const connectPeer = connectorOf(PEERS, new URL('./adapters/', import.meta.url));
