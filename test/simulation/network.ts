// The connections between the processes and the servers. Bytes keep their order in each direction of one connection;
// how long they take, and what is lost when it ends, is drawn from the seed.

import { AsyncResource } from 'node:async_hooks';
import type { RedisOptions } from 'ioredis';
import type { Random } from './redis/random.js';
import type { Connection } from './redis/redis-model.js';
import type { Reply } from './redis/replies.js';
import { encode, encodePush, parseCommands, type Protocol } from './redis/resp.js';
import { SocketStandIn } from './redis/socket-stand-in.js';
import type { Server } from './server.js';
import type { SimulatedProcess } from './simulated-process.js';
import { MESSAGE_TIME, type Swarm } from './swarm.js';
import type { World } from './world.js';

/** No message is under way for longer (ms): what comes later than that is not bounded by any lease. */
const LONGEST_DELAY = 4_000;
/** How late (ms) what a client has sent again arrives on its first connection. */
const LATE = 1_500;

/** Messages of locks and primitives, but not those to oneself, without which the connection counts as dead. */
const MAY_BE_LOST = /^(lock|primitive):process:[\da-f-]+$/;

const RUNS_A_SCRIPT = /\r\nevalsha\r\n\$40\r\n([\da-f]{40})/i;

interface Direction {
  /** When the last bytes arrive. */
  last: number;
  /** What would arrive later is lost. */
  cutAt: number;
}

export interface Cut {
  /** Both ends keep the connection open. */
  readonly silent?: boolean;
  /** Whether answers that are under way may still arrive. */
  readonly answers?: boolean;
  /** The server ends at this moment: nothing that is under way to it arrives. */
  readonly atOnce?: boolean;
  /** What arrives at the server by then is still carried out. */
  readonly until?: number;
}

/** One TCP connection. */
export class Link implements Connection {
  open = true;
  protocol: Protocol = 2;
  channels?: Set<string>;
  private congestion = 0;
  private congestedUntil = 0;
  private heldBackUntil = 0;
  private rest = '';
  private readonly toServer: Direction = { last: 0, cutAt: Infinity };
  private readonly toClient: Direction = { last: 0, cutAt: Infinity };
  private openAtServer = true;
  private readonly random: Random;

  constructor(
    readonly server: Server,
    readonly socket: Socket,
  ) {
    this.random = this.world.stream(socket.name);
    server.links.add(this);
  }

  private get world(): World {
    return this.server.world;
  }

  private get swarm(): Swarm {
    return this.server.swarm;
  }

  send(text: string): void {
    const { swarm, random } = this;
    const { time } = this.socket.process;
    const mayBeLate = this.open && swarm.lateCopies > 0 && this.runsWhatIsLate(text);
    const comesLate = mayBeLate && random.chance(swarm.lateCopies);
    const late = comesLate ? Math.min(LONGEST_DELAY, random.exponential(LATE)) : 0;
    this.transfer(this.toServer, time + late, (at) => this.world.at(at, () => this.arrived(text)));
    if (!comesLate) return;
    // The client sends it again on another connection, and this copy arrives after that one.
    this.cut({ answers: false, until: this.toServer.last });
    if (swarm.lateOf === '' && random.chance(0.5)) this.socket.process.lateUntil = this.toServer.last;
  }

  private runsWhatIsLate(text: string): boolean {
    const [, sha1] = RUNS_A_SCRIPT.exec(text) ?? [];
    const { lateOf } = this.swarm;
    return sha1 !== undefined && (lateOf === '' || scriptNames.get(sha1) === lateOf);
  }

  push(message: readonly Reply[]): void {
    const [, channel] = message;
    const isLost = () => this.random.chance(this.swarm.lostMessages);
    if (typeof channel === 'string' && MAY_BE_LOST.test(channel) && isLost()) {
      return this.world.note(this.socket.name, () => `never gets ${JSON.stringify(message)}`);
    }
    this.reply(encodePush(message, this.protocol));
  }

  /** Whether it is one for messages. */
  get listens(): boolean {
    return this.channels !== undefined && this.channels.size > 0;
  }

  /** All that passes takes up to `ms` longer for a while: also messages, while commands stay fast. */
  congest(ms: number, duration: number): void {
    this.congestion = ms;
    this.congestedUntil = this.world.now + duration;
    this.world.note(this.socket.name, `is slower by up to ${ms} ms for ${duration.toFixed(0)} ms`);
  }

  /** Where the network is bad for a request, it may be so for all that its process is sent: messages for longer. */
  private holdBackUntilLate(): void {
    const { process } = this.socket;
    const { now } = this.world;
    const until = process.lateUntil;
    process.lateUntil = 0;
    for (const link of this.server.links) {
      if (!link.open || link.socket.process !== process) continue;
      link.heldBackUntil = until + (link.listens ? this.random.between(0, 1_500) : 0);
      this.world.note(link.socket.name, `is not answered for ${(link.heldBackUntil - now).toFixed(0)} ms`);
    }
  }

  /** Ends the connection: each direction at another time. */
  cut({ silent = false, answers = true, atOnce = false, until }: Cut): void {
    const { world, random, swarm } = this;
    this.open = false;
    const spread = () => world.now + (random.chance(0.5) ? 0 : random.exponential(swarm.slowness));
    this.toServer.cutAt = until ?? (atOnce ? world.now : spread());
    this.toClient.cutAt = answers ? spread() : world.now;
    world.note(this.socket.name, silent ? 'goes silent' : 'is cut');
    if (!silent) this.socket.lose(this.toClient.cutAt + delay(random, swarm), new Error('read ECONNRESET'));
    const noticed = silent ? random.between(5e3, 60e3) : delay(random, swarm);
    world.at(this.toServer.cutAt + (atOnce ? 0 : noticed), () => this.closed());
  }

  /** The client has closed its end. */
  ended(): void {
    this.open = false;
    this.transfer(this.toServer, this.socket.process.time, (at) => this.world.at(at, () => this.closed()));
  }

  private transfer(direction: Direction, from: number, arrive: (at: number) => void): void {
    const { world, random } = this;
    const congested = world.now < this.congestedUntil ? random.between(0, this.congestion) : 0;
    const at = Math.max(direction.last, from + delay(random, this.swarm) + congested);
    direction.last = at;
    if (at <= direction.cutAt) arrive(at);
    else world.note(this.socket.name, 'loses what is under way');
  }

  private arrived(text: string): void {
    // A cut may have come after the send.
    if (this.world.now > this.toServer.cutAt || !this.openAtServer) return;
    const { commands, rest } = parseCommands(this.rest + text);
    this.rest = rest;
    if (this.socket.process.lateUntil > this.world.now && RUNS_A_SCRIPT.test(text)) this.holdBackUntilLate();
    const { model } = this.server;
    for (const command of commands) {
      this.world.note(this.socket.name, () => shown(command));
      const reply = model.execute(this, command);
      if (reply !== undefined) this.reply(encode(reply, this.protocol));
      if (this.open && this.random.chance(this.swarm.lostAnswers)) return this.cut({ answers: false });
      if (this.open && this.listens && this.socket.process.unheardUntil > this.world.now)
        return this.cut({ atOnce: true });
    }
  }

  private reply(text: string): void {
    this.transfer(this.toClient, Math.max(this.world.now, this.heldBackUntil), (at) => {
      this.socket.process.receive(at, () => {
        if (at <= this.toClient.cutAt) this.socket.data(text);
      });
    });
  }

  private closed(): void {
    if (!this.openAtServer) return;
    this.openAtServer = false;
    this.open = false;
    this.server.model.close(this);
    this.server.links.delete(this);
    this.socket.lose(this.world.now + delay(this.random, this.swarm));
  }
}

/** How long (ms) a message takes. */
export function delay(random: Random, swarm: Swarm): number {
  if (random.chance(swarm.slow)) return Math.min(LONGEST_DELAY, random.exponential(swarm.slowness));
  return random.between(0.05, 0.6) * (swarm.messageTime / MESSAGE_TIME);
}

/** The end of a connection that a client has. */
export class Socket extends SocketStandIn {
  readonly name: string;
  override connecting = true;
  bytesRead = 0;
  private readonly resource = new AsyncResource('Socket');
  private link: Link | undefined;
  private timeout: NodeJS.Timeout | undefined;

  constructor(
    readonly process: SimulatedProcess,
    server: Server,
  ) {
    super('redis');
    const { world, network, swarm } = process;
    process.sockets += 1;
    this.name = `${process.name}/${process.sockets}`;
    const refused = network.until > world.now;
    if (refused && network.silent) return;
    process.receive(process.time + delay(process.random, swarm), () => {
      if (this.destroyed) return;
      this.resource.runInAsyncScope(() => {
        if (refused) return void this.destroy(new Error('connect ECONNREFUSED'));
        this.connecting = false;
        this.link = new Link(server, this);
        this.emit('connect');
        return undefined;
      });
    });
  }

  write(data: string | Buffer): boolean {
    if (!this.writable) return false;
    this.link?.send((typeof data === 'string' ? Buffer.from(data) : data).toString('latin1'));
    return true;
  }

  data(text: string): void {
    if (this.destroyed) return;
    this.bytesRead += text.length;
    this.resource.runInAsyncScope(() => this.emit('data', Buffer.from(text, 'latin1')));
  }

  end(): void {
    if (!this.writable) return;
    this.writable = false;
    if (this.link) this.link.ended();
    else this.destroy();
  }

  /** The other end, or the network, has closed the connection. */
  lose(at: number, error?: Error): void {
    this.process.receive(at, () => this.resource.runInAsyncScope(() => this.destroy(error)));
  }

  destroy(error?: Error): this {
    if (this.destroyed) return this;
    this.destroyed = true;
    this.connecting = false;
    if (this.writable) this.link?.ended();
    this.writable = false;
    clearTimeout(this.timeout);
    process.nextTick(() => {
      if (error) this.emit('error', error);
      this.emit('close', error !== undefined);
    });
    return this;
  }

  override setTimeout(ms: number, callback: () => void): this {
    clearTimeout(this.timeout);
    this.timeout = ms > 0 ? setTimeout(callback, ms) : undefined;
    return this;
  }
}

/** For the option `Connector` of ioredis, which makes the connections of a client. */
export function connectorOf(process: SimulatedProcess, server: Server): NonNullable<RedisOptions['Connector']> {
  class SimulatedConnector {
    private stream: Socket | undefined;
    private readonly disconnectTimeout: number;
    firstError: Error | undefined;

    constructor({ disconnectTimeout }: { disconnectTimeout: number }) {
      this.disconnectTimeout = disconnectTimeout;
    }

    check(): boolean {
      return true;
    }

    async connect(): Promise<Socket> {
      const stream = new Socket(process, server);
      this.stream = stream;
      stream.once('error', (error: Error) => (this.firstError = error));
      return stream;
    }

    disconnect(): void {
      const { stream } = this;
      if (!stream) return;
      const timer = setTimeout(() => stream.destroy(), this.disconnectTimeout);
      stream.once('close', () => clearTimeout(timer));
      stream.end();
    }
  }
  return SimulatedConnector as unknown as NonNullable<RedisOptions['Connector']>;
}

const scriptNames = new Map<string, string>();

/** What the trace calls the script. */
export function nameScript(sha1: string, name: string): void {
  scriptNames.set(sha1, name);
}

function shown([command = '', ...args]: readonly string[]): string {
  const short = args.map((each) => (each.length > 60 ? `${each.slice(0, 20)}...` : each));
  if (command.toLowerCase() !== 'evalsha') return [command, ...short].join(' ');
  const [sha1 = '', , ...rest] = short;
  return [scriptNames.get(sha1) ?? sha1, ...rest].join(' ');
}
