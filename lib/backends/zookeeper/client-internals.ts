import { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import type { Client } from 'node-zookeeper-client';

/** How many bytes the length of a reply takes, or of a path, which precedes it. */
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

/** How many bytes of paths one request names, as in ZooKeeper's own client: a server takes up to `jute.maxbuffer`. */
const MOST_BYTES = 128 * 1024;
/** The code of the request that names all watches of a session on a new connection. */
const SET_WATCHES = 101;

const LISTS = ['dataWatches', 'existWatches', 'childWatches'] as const;

type List = (typeof LISTS)[number];

interface WatchesPayload extends Record<List, readonly string[]> {
  readonly chrootPath?: string | undefined;
}

interface WatchesRequest {
  readonly header: object;
  readonly payload: WatchesPayload;
}

/** The requests that name what this one does, each small enough; the request itself if it names no watches. */
export function partsOf(request: unknown): readonly unknown[] {
  if (!namesWatches(request)) return [request];
  const { header, payload } = request;
  const perPath = LENGTH + Buffer.byteLength(payload.chrootPath ?? '');
  const parts: Record<List, string[]>[] = [];
  let bytes = Infinity;
  for (const list of LISTS) {
    for (const path of payload[list]) {
      const size = perPath + Buffer.byteLength(path);
      if (bytes + size > MOST_BYTES) {
        parts.push({ dataWatches: [], existWatches: [], childWatches: [] });
        bytes = 0;
      }
      bytes += size;
      parts.at(-1)?.[list].push(path);
    }
  }
  // The client writes the number of the request to its header.
  return parts.map((part) => copyOf(request, { header: copyOf(header, {}), payload: copyOf(payload, part) }));
}

function namesWatches(request: unknown): request is WatchesRequest {
  const header: unknown = Reflect.get(Object(request), 'header');
  return Reflect.get(Object(header), 'type') === SET_WATCHES;
}

/** Of the same class, so that the client can encode it. */
function copyOf(original: object, changes: object): object {
  return Object.assign(Object.create(Object.getPrototypeOf(original)), original, changes);
}
