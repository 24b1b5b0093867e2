import { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import type { Client } from 'node-zookeeper-client';
import { partsOf } from './watch-parts.js';

/** How many bytes the length of a reply takes, which precedes it. */
const LENGTH = 4;
/** What the client calls its state between two connections. */
const DISCONNECTED = 0;
const NOTHING = Buffer.alloc(0);

/** Reads and changes what the client library keeps to itself: the socket, and how it reads and writes there. */
export class ClientInternals {
  private readonly manager: object | undefined;
  /** The first part of a reply whose rest has not arrived. */
  private partial: Buffer = NOTHING;
  private corked: Socket | undefined;

  /** @param ended is called for each connection that ends, also if it never opened */
  constructor(client: Client, ended: () => void) {
    const manager: unknown = Reflect.get(client, 'connectionManager');
    this.manager = typeof manager === 'object' && manager !== null ? manager : undefined;
    this.readReplies();
    this.divideWatches();
    if (manager instanceof EventEmitter) {
      manager.on('state', (state: unknown) => {
        if (state === DISCONNECTED) ended();
      });
    }
  }

  /**
   * Ends the connection of the client, as if the server had: the client connects to the next server. Without an error,
   * the client would not stop the timer of a connection that is not open yet, and end a later one with it.
   */
  cutConnection(): void {
    this.socket?.destroy(new Error('the server does not answer'));
  }

  /**
   * Forgets a reply that was cut off, as whose rest the first bytes of the next connection would be read, and the
   * requests that were not sent: their callers learn that they failed, and the client adds some for each connection.
   */
  forgetConnection(): void {
    this.partial = NOTHING;
    const waiting: unknown = this.manager && Reflect.get(Object(Reflect.get(this.manager, 'packetQueue')), 'queue');
    if (Array.isArray(waiting)) waiting.length = 0;
  }

  /**
   * Gathers the requests that follow, so that they are sent together: those of one turn of the event loop while
   * requests are `underWay`, else those of one function. The client would send a packet for each.
   */
  gatherRequests(underWay: boolean): void {
    if (this.corked) return;
    const { socket } = this;
    if (!socket) return;
    this.corked = socket;
    socket.cork();
    if (underWay) setImmediate(this.sendGathered);
    else process.nextTick(this.sendGathered);
  }

  private readonly sendGathered = () => {
    const { corked } = this;
    this.corked = undefined;
    corked?.uncork();
  };

  private get socket(): Socket | undefined {
    const socket: unknown = this.manager && Reflect.get(this.manager, 'socket');
    return socket instanceof Socket ? socket : undefined;
  }

  /**
   * Gives the client one whole reply at a time: with several, it would copy all the others for each. Where it gets an
   * error code that it does not know, such as "session moved", it throws, and so would end the process: the connection
   * is cut instead.
   */
  private readReplies(): void {
    const { manager } = this;
    const read: unknown = manager && Reflect.get(manager, 'onSocketData');
    if (!manager || typeof read !== 'function') return;
    Reflect.set(manager, 'onSocketData', (bytes: Buffer) => {
      try {
        this.splitReplies(bytes, (reply) => void Reflect.apply(read, manager, [reply]));
      } catch {
        this.partial = NOTHING;
        this.cutConnection();
      }
    });
  }

  /**
   * On a new connection, the client names all its watches in one request, which the server refuses, and ends the
   * connection, when there are thousands: they are named in several.
   */
  private divideWatches(): void {
    const { manager } = this;
    const queue: unknown = manager && Reflect.get(manager, 'queue');
    if (!manager || typeof queue !== 'function') return;
    Reflect.set(manager, 'queue', (request: unknown, answered: unknown) => {
      for (const part of partsOf(request)) Reflect.apply(queue, manager, [part, answered]);
    });
  }

  private splitReplies(bytes: Buffer, read: (reply: Buffer) => void): void {
    const { socket } = this;
    const all = this.partial.length === 0 ? bytes : Buffer.concat([this.partial, bytes]);
    this.partial = NOTHING;
    let start = 0;
    while (all.length - start >= LENGTH) {
      const end = start + LENGTH + all.readUInt32BE(start);
      if (end > all.length) break;
      read(all.subarray(start, end));
      if (socket?.destroyed) return;
      start = end;
    }
    if (start < all.length) this.partial = all.subarray(start);
  }
}
