// The store of the library that keeps locks in memory, at the contract of all backends: each call takes its time on a
// connection that may be slow, be cut or lose an answer. No bytes and no scripts: many times the schedules of a Redis.

import { EventEmitter } from 'node:events';
import type { LockBackend, LockStore, ModuleContext, Pending } from '../../../lib/contracts/lock-backend.js';
import type { Server } from '../server.js';
import { SimulatedProcess } from '../simulated-process.js';
import type { World } from '../world.js';
import { RequestLink } from './request-link.js';

type Memory = () => LockBackend;

/** How the store of the library says that it refuses for good. */
type Refusal = new (message: string) => Error;

/** The memory of one world, which all of its processes share. */
class SharedMemory {
  /** The process that keeps it: its clocks are those of the leases. */
  private readonly keeper: SimulatedProcess;
  private store: LockStore | undefined;
  private losses = 0;

  constructor(
    private readonly server: Server,
    private readonly memory: Memory,
  ) {
    this.keeper = new SimulatedProcess(server.world, server.swarm, 'memory');
  }

  /** Carries out a call; its answer is there when this returns. */
  call(use: (store: LockStore) => Pending<unknown>): Answer {
    // What happens to the server of the schedule, happens to this one.
    const losses = this.server.losses.filter(({ key }) => key === undefined).length;
    if (losses > this.losses) this.store = undefined;
    this.losses = losses;
    let answer: Answer | undefined;
    this.keeper.observe(() => {
      this.store ??= this.memory().open(NOBODY);
      use(this.store).then(
        (value) => (answer = { value }),
        (error: unknown) => (answer = { error }),
      );
    });
    if (!answer) throw new Error('The memory does not answer at once');
    return answer;
  }
}

const nothing = () => {};
/** The processes learn of nothing by themselves. */
const NOBODY: ModuleContext = {
  process: 'memory',
  commandTimeout: 1_000,
  report: nothing,
  lost: nothing,
  connected: nothing,
  message: nothing,
  interrupted: nothing,
  reconnected: nothing,
};

interface Answer {
  readonly value?: unknown;
  readonly error?: unknown;
}

const memories = new WeakMap<World, SharedMemory>();

/** A backend whose calls go over a connection to the memory of the world. */
export function contractBackend(
  process: SimulatedProcess,
  server: Server,
  memory: Memory,
  refusal: Refusal,
): LockBackend {
  const { world } = process;
  const shared = memories.get(world) ?? new SharedMemory(server, memory);
  memories.set(world, shared);
  const client = new ContractClient(process, server, shared, refusal);
  const store: LockStore = {
    acquire: (request) => client.call((kept) => kept.acquire(request)),
    acquireSeveral: (request) => client.call((kept) => kept.acquireSeveral?.(request) ?? Promise.reject(new Error())),
    renew: (requests) =>
      requests.map((request) => client.call((kept) => kept.renew([request])[0] ?? Promise.reject(new Error()))),
    release: (request) => client.release((kept) => kept.release(request)),
    mint: (request) => client.call((kept) => kept.mint(request)),
    keep: (request) => client.release((kept) => kept.keep?.(request) ?? Promise.reject(new Error())),
    downgrade: (request) => client.call(async (kept) => kept.downgrade?.(request)),
    inspect: (request) => client.call((kept) => kept.inspect(request)),
  };
  return {
    name: 'contract',
    traits: { lease: 'ttl', fencing: 'strict', leastLease: 1 },
    open: ({ connected }) => {
      client.on('connected', connected);
      return { ...store, stop: () => void client.off('connected', connected) };
    },
    ping: () => client.call(async () => {}),
    close: async () => client.close(),
  };
}

/** The connection of one process, which opens again when it has ended. */
class ContractClient extends EventEmitter {
  private link: RequestLink | undefined;
  private closed = false;
  /** Whether the process knows that the store refuses it. */
  private told = false;

  constructor(
    private readonly process: SimulatedProcess,
    private readonly server: Server,
    private readonly memory: SharedMemory,
    private readonly refusal: Refusal,
  ) {
    super();
    this.open();
  }

  call<T>(use: (store: LockStore) => Pending<T>): Promise<T> {
    if (this.told) this.server.onAskedAgain(this.process);
    return this.release(use);
  }

  /** What the process has is given back, also to a store that refuses all else. */
  release<T>(use: (store: LockStore) => Pending<T>): Promise<T> {
    const { link, server, process } = this;
    if (!link) return Promise.reject(new Error('connect ECONNREFUSED'));
    return new Promise((resolve, reject) =>
      link.request(
        () => (server.refused.has(process) ? this.refuse() : this.memory.call(use)),
        (answer) => {
          this.told ||= answer.error instanceof this.refusal;
          if ('error' in answer) reject(answer.error);
          else resolve(answer.value as T);
        },
        reject,
      ),
    );
  }

  close(): void {
    this.closed = true;
    this.link?.end(new Error('The backend is closed'));
  }

  private refuse(): Answer {
    return { error: new this.refusal('the store refuses this process') };
  }

  private open(): void {
    if (this.closed) return;
    const { process, server } = this;
    if (process.network.until > process.world.now) {
      setTimeout(() => this.open(), 50).unref();
      return;
    }
    this.link = new RequestLink(process, server, () => {
      this.link = undefined;
      setTimeout(() => this.open(), 20).unref();
    });
    this.emit('connected');
  }
}
