// The stores that a schedule may run on.

import type * as Memory from '../../../lib/backends/memory/memory-lock-backend.js';
import type * as Backend from '../../../lib/backends/redis/redis-backend.js';
import type { LockBackend } from '../../../lib/contracts/lock-backend.js';
import { connectorOf } from '../network.js';
import type { Server } from '../server.js';
import type { SimulatedProcess } from '../simulated-process.js';
import { contractBackend } from './contract-store.js';

/** Loads a module of the library. */
export type Load = <Module>(file: string) => Promise<Module>;

/** The backend of one process, at the server of the schedule or at a store that stands for it. */
type BackendOf = (process: SimulatedProcess, server: Server) => LockBackend;

export const STORES = {
  redis: async (load: Load): Promise<BackendOf> => {
    const { redis } = await load<typeof Backend>('backends/redis/redis-backend.js');
    return (process, server) => {
      const { maxRetriesPerRequest } = process.swarm;
      return redis({ host: 'redis', port: 6379, Connector: connectorOf(process, server), maxRetriesPerRequest });
    };
  },
  contract: async (load: Load): Promise<BackendOf> => {
    const { memory } = await load<typeof Memory>('backends/memory/memory-lock-backend.js');
    return (process, server) => contractBackend(process, server, memory);
  },
};

export type StoreName = keyof typeof STORES;
