import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

type Direction = 'request' | 'reply';

interface Link {
  client: Socket;
  server: Socket;
  /** The server carries out the request, but its reply is lost, or all but the last bytes of it arrive. */
  doomed: 'lost' | 'cut' | undefined;
  /** Nothing passes any more, without an error. */
  silent: boolean;
}

interface Trap {
  pattern: string;
  carriedOut: boolean;
  thenRefuses: boolean;
  cut: boolean;
  sprung: () => void;
}

/** How many bytes a reply lacks that is cut. */
const CUT_OFF = 5;

/** A TCP proxy that delays, holds back or loses what passes through it. The order of bytes is kept. */
export class FaultProxy {
  private readonly links = new Set<Link>();
  private delay: Record<Direction, number> = { request: 0, reply: 0 };
  /** What waits for the end of its delay. */
  private readonly late: Record<Direction, (() => void)[]> = { request: [], reply: [] };
  private held: (() => void)[] | undefined;
  private heldDirection: Direction | undefined;
  private trap: Trap | undefined;
  private refusing = false;
  private nextIsSilent = false;
  private alter: ((reply: Buffer) => Buffer) | undefined;

  private constructor(
    private readonly listener: Server,
    private readonly target: number,
  ) {}

  static async start(target: number): Promise<FaultProxy> {
    const listener = createServer({ noDelay: true });
    const proxy = new FaultProxy(listener, target);
    listener.on('connection', (client) => proxy.link(client));
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', () => resolve()));
    return proxy;
  }

  get port(): number {
    return (this.listener.address() as AddressInfo).port;
  }

  /** Delays every chunk by this number of ms from now on. */
  slow(delay: Partial<Record<Direction, number>>): void {
    for (const late of Object.values(this.late)) for (const send of late.splice(0)) send();
    this.delay = { request: 0, reply: 0, ...delay };
  }

  /** Holds everything back until `heal`, or what goes in one direction. */
  hold(direction?: Direction): void {
    this.held ??= [];
    this.heldDirection = direction;
  }

  /** Whether a reply waits for the end of its delay. */
  get delays(): boolean {
    return this.late.reply.length > 0;
  }

  /** Whether anything was held back. */
  get holds(): boolean {
    return (this.held?.length ?? 0) > 0;
  }

  heal(): void {
    const held = this.held ?? [];
    this.held = undefined;
    this.slow({});
    for (const pass of held) pass();
  }

  /**
   * Breaks the connection on the next request that contains `pattern`: after the server carried it out, so that the
   * reply is lost, or before it got there. It may refuse all connections from then on, until `accept`.
   */
  lose(pattern: string, carriedOut: boolean, { thenRefuses = false } = {}): Promise<void> {
    return new Promise((sprung) => (this.trap = { pattern, carriedOut, thenRefuses, cut: false, sprung }));
  }

  /** Ends the connection in the middle of the reply to the next request that contains `pattern`. */
  cutReply(pattern: string): Promise<void> {
    return new Promise((sprung) => {
      this.trap = { pattern, carriedOut: true, thenRefuses: false, cut: true, sprung };
    });
  }

  /** The connections that there are stay open, and nothing passes through them any more. */
  silence(): void {
    for (const link of this.links) link.silent = true;
  }

  /** Nothing passes through the next connection, from its beginning on. */
  silenceNext(): void {
    this.nextIsSilent = true;
  }

  /** Passes each chunk of a reply through `alter` from now on. */
  alterReplies(alter: (reply: Buffer) => Buffer): void {
    this.alter = alter;
  }

  /** As `alterReplies`, with one reply at a time. */
  alterEach(alter: (reply: Buffer) => Buffer): void {
    this.alterReplies((replies) => {
      const parts: Buffer[] = [];
      for (let at = 0; at < replies.length;) {
        const end = endOf(replies, at);
        parts.push(alter(replies.subarray(at, end)));
        at = end;
      }
      return Buffer.concat(parts);
    });
  }

  /** Loses or doubles the next reply that includes `text`, and keeps the connection. Returns whether it has come. */
  mixUp(how: 'lost' | 'doubled', text = ''): () => boolean {
    let come = false;
    this.alterEach((reply) => {
      if (come || !reply.includes(text)) return reply;
      come = true;
      return how === 'lost' ? Buffer.alloc(0) : Buffer.concat([reply, reply]);
    });
    return () => come;
  }

  /** Breaks all connections, and each new one until `accept`. */
  refuse(): void {
    this.refusing = true;
    this.reset();
  }

  accept(): void {
    this.refusing = false;
  }

  reset(): void {
    for (const { client, server } of this.links) {
      breakOff(client);
      server.destroy();
    }
  }

  async stop(): Promise<void> {
    this.reset();
    await new Promise<void>((resolve) => this.listener.close(() => resolve()));
  }

  private link(client: Socket): void {
    if (this.refusing) {
      breakOff(client.on('error', () => {}));
      return;
    }
    const server = connect({ host: '127.0.0.1', port: this.target, noDelay: true });
    const link: Link = { client, server, doomed: undefined, silent: this.nextIsSilent };
    this.nextIsSilent = false;
    this.links.add(link);
    const end = () => {
      this.links.delete(link);
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) socket.on('error', () => {}).once('close', end);
    client.on('data', (bytes: Buffer) => {
      if (!link.silent) this.request(link, bytes);
    });
    server.on('data', (bytes: Buffer) => {
      if (link.silent) return;
      if (link.doomed === 'cut') client.end(bytes.subarray(0, -CUT_OFF));
      else if (link.doomed) breakOff(client);
      else this.pass('reply', () => client.write(this.alter?.(bytes) ?? bytes));
    });
  }

  private request(link: Link, bytes: Buffer): void {
    if (this.trap && bytes.includes(this.trap.pattern)) {
      const { carriedOut, thenRefuses, cut, sprung } = this.trap;
      this.trap = undefined;
      this.refusing ||= thenRefuses;
      link.doomed = cut ? 'cut' : 'lost';
      if (carriedOut) link.server.write(bytes);
      else breakOff(link.client);
      sprung();
      return;
    }
    this.pass('request', () => link.server.write(bytes));
  }

  private pass(direction: Direction, send: () => void): void {
    const late = this.late[direction];
    if (this.held && direction === (this.heldDirection ?? direction)) this.held.push(send);
    else if (this.delay[direction] > 0 || late.length > 0) {
      late.push(send);
      // What `heal` has sent meanwhile is no longer there.
      setTimeout(() => late[0] === send && late.shift()?.(), this.delay[direction]);
    } else send();
  }
}

/**
 * Resets it, unless it ends already: Node.js does not close a socket that is reset in the turn in which it ends, and
 * then spins for ever when the process ends.
 */
function breakOff(socket: Socket): void {
  if (socket.writable) socket.resetAndDestroy();
  else socket.destroy();
}

/** Where the reply ends that begins at `at`. */
export function endOf(replies: Buffer, at: number): number {
  const end = replies.indexOf('\r\n', at) + 2;
  const kind = String.fromCharCode(replies[at] ?? 0);
  const length = Number(replies.toString('latin1', at + 1, end - 2));
  if (kind === '$') return length < 0 ? end : end + length + 2;
  let next = end;
  if (kind === '*') for (let element = 0; element < length; element++) next = endOf(replies, next);
  return next;
}
