// The store of the library that keeps locks in memory, at the contract of all backends: each call takes its time on a
// connection that may be slow, be cut or lose an answer. No bytes and no scripts: many times the schedules of a Redis.

import { EventEmitter } from 'node:events';
import type { LockBackend, Pending } from '../../../lib/contracts/lock-backend.js';
import { type Cut, delay, type Link } from '../network.js';
import type { Random } from '../redis/random.js';
import type { Server } from '../server.js';
import { SimulatedProcess } from '../simulated-process.js';
import type { World } from '../world.js';

type Memory = () => LockBackend;

/** The memory of one world, which all of its processes share. */
class SharedMemory {
  /** The process that keeps it: its clocks are those of the leases. */
  private readonly keeper: SimulatedProcess;
  private backend: LockBackend | undefined;
  private losses = 0;

  constructor(
    private readonly server: Server,
    private readonly memory: Memory,
  ) {
    this.keeper = new SimulatedProcess(server.world, server.swarm, 'memory');
  }

  /** Carries out a call; its answer is there when this returns. */
  call(use: (backend: LockBackend) => Pending<unknown>): Answer {
    // What happens to the server of the schedule, happens to this one.
    const losses = this.server.losses.filter(({ key }) => key === undefined).length;
    if (losses > this.losses) this.backend = undefined;
    this.losses = losses;
    let answer: Answer | undefined;
    this.keeper.observe(() => {
      this.backend ??= this.memory();
      use(this.backend).then(
        (value) => (answer = { value }),
        (error: unknown) => (answer = { error }),
      );
    });
    if (!answer) throw new Error('The memory does not answer at once');
    return answer;
  }
}

interface Answer {
  readonly value?: unknown;
  readonly error?: unknown;
}

const memories = new WeakMap<World, SharedMemory>();

/** A backend whose calls go over a connection to the memory of the world. */
export function contractBackend(process: SimulatedProcess, server: Server, memory: Memory): LockBackend {
  const { world, swarm } = process;
  // It keeps no queue.
  swarm.fifo = 0;
  const shared = memories.get(world) ?? new SharedMemory(server, memory);
  memories.set(world, shared);
  const client = new ContractClient(process, server, shared);
  return {
    name: 'contract',
    traits: { lease: 'ttl', fencing: 'strict', severalKeys: true, leastLease: 1 },
    acquire: (request) => client.call((backend) => backend.acquire(request)),
    renew: (requests) =>
      requests.map((request) => client.call((backend) => backend.renew([request])[0] ?? Promise.reject(new Error()))),
    release: (request) => client.call((backend) => backend.release(request)),
    mint: (request) => client.call((backend) => backend.mint(request)),
    keep: (request) => client.call((backend) => backend.keep?.(request) ?? Promise.reject(new Error())),
    downgrade: (request) => client.call(async (backend) => backend.downgrade?.(request)),
    inspect: (request) => client.call((backend) => backend.inspect(request)),
    ping: () => client.call((backend) => backend.ping()),
    whenConnected: (listener) => {
      client.on('connected', listener);
      return () => client.off('connected', listener);
    },
    close: async () => client.close(),
  };
}

/** The connection of one process, which opens again when it has ended. */
class ContractClient extends EventEmitter {
  private link: ContractLink | undefined;
  private closed = false;

  constructor(
    private readonly process: SimulatedProcess,
    private readonly server: Server,
    private readonly memory: SharedMemory,
  ) {
    super();
    this.open();
  }

  call<T>(use: (backend: LockBackend) => Pending<T>): Promise<T> {
    const { link } = this;
    if (!link) return Promise.reject(new Error('connect ECONNREFUSED'));
    return new Promise((resolve, reject) => link.call(use, resolve as (value: unknown) => void, reject));
  }

  close(): void {
    this.closed = true;
    this.link?.end();
  }

  private open(): void {
    if (this.closed) return;
    const { process, server } = this;
    if (process.network.until > process.world.now) {
      setTimeout(() => this.open(), 50).unref();
      return;
    }
    this.link = new ContractLink(process, server, this.memory, () => {
      this.link = undefined;
      setTimeout(() => this.open(), 20).unref();
    });
    this.emit('connected');
  }
}

interface Unanswered {
  fail(error: Error): void;
}

/** One connection, in the form that the faults of a schedule know. */
class ContractLink {
  open = true;
  readonly socket: { readonly process: SimulatedProcess; readonly name: string; destroyed: boolean };
  private readonly pending = new Set<Unanswered>();
  private lastToServer = 0;
  private lastToClient = 0;
  private cutToServer = Infinity;
  private cutToClient = Infinity;
  private readonly random: Random;

  constructor(
    process: SimulatedProcess,
    private readonly server: Server,
    private readonly memory: SharedMemory,
    private readonly onEnd: () => void,
  ) {
    process.sockets += 1;
    this.socket = { process, name: `${process.name}/${process.sockets}`, destroyed: false };
    this.random = process.world.stream(this.socket.name);
    server.links.add(this as unknown as Link);
  }

  call(
    use: (backend: LockBackend) => Pending<unknown>,
    resolve: (value: unknown) => void,
    reject: (error: unknown) => void,
  ): void {
    const { server, memory, pending, socket } = this;
    const { world, swarm } = server;
    const unanswered = { fail: reject };
    pending.add(unanswered);
    this.lastToServer = Math.max(this.lastToServer, socket.process.time + this.delay());
    if (this.lastToServer > this.cutToServer) return;
    world.at(this.lastToServer, () => {
      if (world.now > this.cutToServer) return;
      const answer = memory.call(use);
      if (this.open && this.random.chance(swarm.lostAnswers)) return this.cut({ answers: false });
      this.lastToClient = Math.max(this.lastToClient, world.now + this.delay());
      if (this.lastToClient > this.cutToClient) return;
      socket.process.receive(this.lastToClient, () => {
        if (!pending.delete(unanswered)) return;
        if ('error' in answer) reject(answer.error);
        else resolve(answer.value);
      });
    });
  }

  cut({ silent = false, answers = true }: Cut): void {
    const { server, socket } = this;
    const { world } = server;
    this.open = false;
    this.cutToServer = world.now + (this.random.chance(0.5) ? 0 : this.delay());
    this.cutToClient = answers ? world.now + this.delay() : world.now;
    world.note(socket.name, silent ? 'goes silent' : 'is cut');
    const noticed = silent ? this.random.between(1e3, 8e3) : 0;
    socket.process.receive(this.cutToClient + noticed + this.delay(), () => this.end());
  }

  congest(): void {}

  end(): void {
    const { server, socket, pending } = this;
    if (socket.destroyed) return;
    this.open = false;
    socket.destroyed = true;
    server.links.delete(this as unknown as Link);
    for (const { fail } of pending) fail(new Error('read ECONNRESET'));
    pending.clear();
    this.onEnd();
  }

  private delay(): number {
    return delay(this.random, this.server.swarm);
  }
}
