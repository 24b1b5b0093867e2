// The stores that a schedule may run on.

import type * as Memory from '../../../lib/backends/memory/memory-lock-backend.js';
import type * as Redlock from '../../../lib/backends/redlock/redlock-lock-backend.js';
import type * as Backend from '../../../lib/backends/redis/redis-backend.js';
import type * as Refusals from '../../../lib/contracts/store.js';
import type { LockBackend } from '../../../lib/contracts/lock-backend.js';
import { connectorOf } from '../network.js';
import type { Server } from '../server.js';
import type { SimulatedProcess } from '../simulated-process.js';
import type { Extent } from '../schedule.js';
import type { Swarm } from '../swarm.js';
import { contractBackend } from './contract-store.js';
import { etcdStore, SESSION } from './etcd-store.js';
import { quorumOf } from './quorum.js';

/** Loads a module of the library. */
export type Load = <Module>(file: string) => Promise<Module>;

/** Fifty holds or a few more, for as many schedules as possible. */
const SHORT: Extent = { faults: 2_500, calm: 4_000, calls: 400_000, holds: 50 };

interface Store {
  /** What a schedule on this store never has, of what was drawn. */
  swarm(drawn: Swarm): Partial<Swarm>;
  /** How far a schedule goes. Default: as far as most do. */
  readonly extent?: Extent;
  /** The backend of one process, at the server of the schedule or at what stands for it. */
  backendOf(process: SimulatedProcess, server: Server): LockBackend;
}

/** Without a queue that keeps an order, and without the primitives. */
const LOCKS_ALONE: Partial<Swarm> = { fifo: 0, lingers: 0, kinds: ['locks'] };

export const STORES = {
  redis: async (load: Load): Promise<Store> => {
    const { redis } = await load<typeof Backend>('backends/redis/redis-backend.js');
    return {
      swarm: () => ({}),
      backendOf: (process, server) => {
        server.keepsAll = true;
        return redis(connectionTo(process, server));
      },
    };
  },

  /** Five servers, each with a clock of its own. */
  redlock: async (load: Load): Promise<Store> => {
    const { redlock } = await load<typeof Redlock>('backends/redlock/redlock-lock-backend.js');
    return {
      swarm: () => ({ ...LOCKS_ALONE, reads: 0, evictions: 0, emptied: 0, failovers: 0 }),
      backendOf: (process, server) => {
        const connections = quorumOf(server).map((node) => connectionTo(process, node));
        return redlock(connections, { restartDelay: 4_000 });
      },
    };
  },

  /**
   * Locks that live with the lease of a session. It has no readers. After a loss of data, tokens go on from the clocks
   * of the processes, so that these must be right. A lease is what is left of the session: a body that blocks for half
   * of its `ttl` is promised so much only where the session is longer than that.
   */
  etcd: async (load: Load): Promise<Store> => ({
    swarm: ({ emptied, blocks, ttl }) => ({
      kinds: ['locks'],
      blocks: ttl < SESSION / 2 ? blocks : 0,
      reads: 0,
      evictions: 0,
      failovers: 0,
      ...(emptied > 0 && { drift: 0, skew: 0 }),
    }),
    backendOf: await etcdStore(load),
  }),

  contract: async (load: Load): Promise<Store> => {
    const { memory } = await load<typeof Memory>('backends/memory/memory-lock-backend.js');
    const { BackendRefusal } = await load<typeof Refusals>('contracts/store.js');
    return {
      // Chance decides who asks first after a body that overran, which lasts a lease: none where order is checked.
      swarm: ({ ttl, holdTime, overstays, faultless, deaf, unheard }) => ({
        ...LOCKS_ALONE,
        processes: 3,
        callers: 4,
        ttl: Math.min(ttl, 300),
        holdTime: Math.min(holdTime, 10),
        overstays: faultless || deaf || unheard ? 0 : Math.min(overstays, 0.03),
      }),
      extent: SHORT,
      backendOf: (process, server) => contractBackend(process, server, memory, BackendRefusal),
    };
  },
};

export type StoreName = keyof typeof STORES;

function connectionTo(process: SimulatedProcess, server: Server) {
  const { maxRetriesPerRequest } = process.swarm;
  return { host: server.name, port: 6379, Connector: connectorOf(process, server), maxRetriesPerRequest };
}
