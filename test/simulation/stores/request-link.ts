// A connection for requests and their answers, in the form that the faults of a schedule know. What a store models is
// carried out when a request has arrived; no bytes are sent.

import { type Cut, delay, type Link } from '../network.js';
import type { Random } from '../redis/random.js';
import type { Server } from '../server.js';
import type { SimulatedProcess } from '../simulated-process.js';

interface Unanswered {
  /** `sent`: the store may have carried it out. */
  fail(error: Error, sent: boolean): void;
}

export class RequestLink {
  open = true;
  readonly socket: { readonly process: SimulatedProcess; readonly name: string; destroyed: boolean };
  private readonly pending = new Set<Unanswered>();
  private readonly random: Random;
  private lastToServer = 0;
  private lastToClient = 0;
  private cutToServer = Infinity;
  private cutToClient = Infinity;

  constructor(
    process: SimulatedProcess,
    readonly server: Server,
    private readonly onEnd: (why: Error) => void,
  ) {
    process.sockets += 1;
    this.socket = { process, name: `${process.name}/${process.sockets}`, destroyed: false };
    this.random = process.world.stream(this.socket.name);
    server.links.add(this as unknown as Link);
  }

  /** Calls `answered` with the result of `carryOut`, which runs at the store, unless the connection ends before. */
  request<T>(carryOut: () => T, answered: (result: T) => void, failed: Unanswered['fail']): void {
    const { server, pending, socket, random } = this;
    const { world, swarm } = server;
    const unanswered = { fail: failed };
    pending.add(unanswered);
    this.lastToServer = Math.max(this.lastToServer, socket.process.time + delay(random, swarm));
    if (this.lastToServer > this.cutToServer) return;
    world.at(this.lastToServer, () => {
      if (world.now > this.cutToServer) return;
      const result = carryOut();
      if (this.open && random.chance(swarm.lostAnswers)) return this.cut({ answers: false });
      this.tell(() => pending.delete(unanswered) && answered(result));
    });
  }

  /** What the trace says that the store is asked for. */
  note(what: () => string): void {
    this.server.world.note(this.socket.name, what);
  }

  /** From the store to the process, in order. */
  tell(run: () => void): void {
    const { server, socket, random } = this;
    this.lastToClient = Math.max(this.lastToClient, server.world.now + delay(random, server.swarm));
    if (this.lastToClient > this.cutToClient) return;
    const at = this.lastToClient;
    socket.process.receive(at, () => {
      if (at <= this.cutToClient && !socket.destroyed) run();
    });
  }

  cut({ silent = false, answers = true }: Cut): void {
    const { server, socket, random } = this;
    const { world, swarm } = server;
    this.open = false;
    this.cutToServer = world.now + (random.chance(0.5) ? 0 : delay(random, swarm));
    this.cutToClient = answers ? world.now + delay(random, swarm) : world.now;
    world.note(socket.name, silent ? 'goes silent' : 'is cut');
    const noticed = silent ? random.between(1e3, 8e3) : delay(random, swarm);
    socket.process.receive(this.cutToClient + noticed, () => this.end(new Error('read ECONNRESET')));
  }

  congest(ms: number): void {
    this.lastToClient = Math.max(this.lastToClient, this.server.world.now + this.random.between(0, ms));
  }

  end(why: Error): void {
    const { server, socket, pending } = this;
    if (socket.destroyed) return;
    this.open = false;
    socket.destroyed = true;
    server.links.delete(this as unknown as Link);
    for (const { fail } of pending) fail(why, true);
    pending.clear();
    this.onEnd(why);
  }
}
