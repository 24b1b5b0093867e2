import type { LatchListener, LatchState, LatchStore } from '../../../contracts/primitives/latch-store.js';
import { ExpiringMap } from '../expiring-map.js';

interface Latch {
  readonly count: number;
  readonly ttl: number;
  readonly arrivals: Set<string>;
}

/** Count-down latches in the memory of the process, for modules that share the backend. */
export class MemoryLatches {
  private readonly latches = new ExpiringMap<Latch>();
  /** By process, each with the prefix of its module. */
  private readonly listeners = new Map<
    string,
    { readonly prefix: string | undefined; readonly listener: LatchListener }
  >();

  open(prefix: string | undefined): LatchStore {
    const keyOf = (name: string) => JSON.stringify([prefix, name]);
    return {
      define: async ({ name, count, ttl }) => {
        const latch = this.latches.get(keyOf(name)) ?? { count, ttl, arrivals: new Set() };
        if (!this.latches.get(keyOf(name))) this.latches.set(keyOf(name), latch, ttl);
        return stateOf(latch);
      },
      arrive: async ({ name, arrival }) => {
        const latch = this.latches.get(keyOf(name));
        if (!latch) return undefined;
        if (stateOf(latch).remaining > 0) latch.arrivals.add(arrival);
        this.latches.expire(keyOf(name), latch.ttl);
        if (stateOf(latch).remaining === 0) this.tell(prefix, name);
        return stateOf(latch);
      },
      look: async (name) => {
        const latch = this.latches.get(keyOf(name));
        return latch && stateOf(latch);
      },
      listen: (listener) => void this.listeners.set(listener.process, { prefix, listener }),
      unlisten: (process) => void this.listeners.delete(process),
    };
  }

  private tell(prefix: string | undefined, name: string): void {
    for (const each of this.listeners.values()) {
      if (each.prefix === prefix) setImmediate(() => each.listener.onOpen(name));
    }
  }
}

function stateOf({ count, arrivals }: Latch): LatchState {
  return { count, remaining: count - arrivals.size };
}
