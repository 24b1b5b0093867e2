import { memory } from 'nest-redis-lock';
import type { WorldKind } from '../conforms.js';

/** Processes are modules that share one instance. */
export const memoryWorld: WorldKind = {
  faults: [],
  start: async () => {
    const backend = memory();
    return { open: () => backend, stop: () => backend.close() };
  },
};
