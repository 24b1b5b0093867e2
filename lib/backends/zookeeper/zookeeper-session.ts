import { createClient, type Client, Exception } from 'node-zookeeper-client';
import { onceRead } from '../../timing/clock.js';
import { ClientInternals } from './client-internals.js';
import type { ZooKeeperSettings } from './zookeeper-options.js';
import { ZooKeeperRequests, unless } from './zookeeper-requests.js';

/** How long (ms) the client pauses at most after it has tried all servers. */
const PAUSE = 100;
/** Pings in the length of a session. */
const PINGS = 6;
/**
 * The share of its length for which a session is trusted after a proof. The leader counts from the last request of
 * which it knows: a server tells it every half tick only, so that it may be the one before the proof.
 */
const TRUSTED = 0.7;
/** The share of the session that passes after a ping before a renewal sends another one. */
const STALE = 0.1;
/** How long (ms) the end of the session may take. */
const CLOSING = 1_000;

/** What happens to a session. */
interface SessionEvents {
  connected(): void;
  /**
   * It has ended, or must be taken for ended because nothing has proved for its whole length that it lives. Comes last.
   */
  lost(why: SessionError): void;
}

/**
 * One session of ZooKeeper. The client library sends pings, and notices neither that they stay unanswered nor that a
 * new connection does; and a server that was cut off from the others goes on answering them. This class sends pings of
 * its own, on whose answers a majority of the servers agrees. It connects to another server when none was answered for
 * two thirds of the time for which it trusts the session, or nothing on a new connection in time, and takes the session
 * for lost when none was for all of that time.
 */
export class ZooKeeperSession {
  readonly requests: ZooKeeperRequests;
  readonly deletions: DeletionWatches;
  connected = false;
  lost = false;
  private readonly client: Client;
  private readonly internals: ClientInternals;
  private readonly attempts: ServerAttempts;
  private timer: NodeJS.Timeout | undefined;
  /** When (monotonic, ms) the last request was sent whose answer proves that the session lives. */
  private confirmedAt = Infinity;
  private pingedAt = -Infinity;
  private readonly asked: number;

  /** @param patience how long (ms) a request waits for a connection */
  constructor(
    settings: ZooKeeperSettings,
    patience: number,
    private readonly events: SessionEvents,
  ) {
    const { servers, chroot, sessionTimeout, auth } = settings;
    this.asked = sessionTimeout;
    this.client = createClient(servers + chroot, { sessionTimeout, retries: 0, spinDelay: PAUSE });
    this.internals = new ClientInternals(this.client, () => this.onDisconnected());
    this.attempts = new ServerAttempts(servers.split(',').length, patience);
    if (auth) this.client.addAuthInfo('digest', Buffer.from(`${auth.user}:${auth.password}`));
    this.requests = new ZooKeeperRequests(this.client, this.internals, auth !== undefined, (sentAt, proof) => {
      this.attempts.answered();
      if (proof) this.confirm(sentAt);
    });
    this.deletions = new DeletionWatches(this.requests);
    this.client.on('connected', () => this.onConnected());
    this.client.on('expired', () => this.lose(new SessionError('the session has expired')));
    this.client.on('authenticationFailed', () => {
      this.lose(new SessionError('the server refuses the user or the password', true));
    });
    this.client.connect();
    this.watch();
  }

  /** The length (ms) of the session for which it is trusted and tended: never more than was asked for. */
  get timeout(): number {
    return Math.min(this.asked, this.granted);
  }

  /** The length (ms) of the session, as the server tells it. */
  get granted(): number {
    return this.client.getSessionTimeout();
  }

  /** Milliseconds for which the servers keep the session at least, by the last proof that it lives; 0 without one. */
  left(): number {
    return this.confirmedAt === Infinity ? 0 : Math.max(0, Math.floor(this.trusted - this.silence));
  }

  /** Milliseconds after a proof for which the session is trusted. */
  private get trusted(): number {
    return this.timeout * TRUSTED;
  }

  /** Milliseconds that are left of that time when its server counts as silent. */
  private get rest(): number {
    return this.trusted / 3;
  }

  /** Milliseconds since the last request was sent whose answer proves that the session lives. */
  get silence(): number {
    return Math.max(0, performance.now() - this.confirmedAt);
  }

  /**
   * Asks for a proof that the session lives, unless that was done just now: the answers to later requests follow it.
   */
  refresh(): void {
    if (performance.now() - this.pingedAt > this.timeout * STALE) this.ping();
  }

  /** Ends the session, and with it all its nodes. Waits until the server has done so, at most a second. */
  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.client.once('disconnected', () => resolve(undefined)));
    const timeUp = new Promise((resolve) => setTimeout(resolve, CLOSING).unref());
    this.end(new SessionError('the backend is closed'));
    this.client.close();
    if (this.connected) await Promise.race([ended, timeUp]);
    this.discard();
  }

  private confirm(sentAt: number): void {
    if (this.confirmedAt === Infinity || sentAt > this.confirmedAt) this.confirmedAt = sentAt;
  }

  private onConnected(): void {
    if (this.lost) return;
    this.connected = true;
    this.ping();
    this.events.connected();
    this.watch();
  }

  private onDisconnected(): void {
    if (this.lost) return;
    this.internals.forgetConnection();
    this.connected = false;
    this.attempts.next(this.rest);
    this.requests.failAll(new SessionError('the connection was closed before the answer'));
    this.watch();
  }

  private ping(): void {
    this.pingedAt = performance.now();
    this.requests.barrier('/').catch(() => {});
  }

  private watch(): void {
    clearTimeout(this.timer);
    if (this.lost) return;
    const next = Math.min(this.confirmedAt + this.trusted, this.moveAt, this.connected ? this.pingAt : Infinity);
    this.timer = setTimeout(() => onceRead(() => this.look()), Math.max(1, next - performance.now())).unref();
  }

  /** When (monotonic, ms) the next ping is due. */
  private get pingAt(): number {
    return this.pingedAt + this.timeout / PINGS;
  }

  /** When (monotonic, ms) the client connects to the next server, if this one proves nothing. */
  private get moveAt(): number {
    const { attempts, confirmedAt, trusted, rest } = this;
    if (attempts.underWay) return attempts.endsAt(rest);
    return Math.max(confirmedAt + trusted - rest, attempts.startedAt + this.timeout / 3);
  }

  private look(): void {
    if (this.lost) return;
    const now = performance.now();
    const { silence } = this;
    if (silence >= this.trusted) {
      return this.lose(new SessionError(`no majority of the servers has answered for ${Math.round(silence)} ms`));
    }
    if (now >= this.moveAt) this.internals.cutConnection();
    else if (this.connected && now >= this.pingAt) this.ping();
    this.watch();
  }

  private lose(why: SessionError): void {
    if (this.lost) return;
    this.end(why);
    this.client.close();
    this.discard();
    this.events.lost(why);
  }

  private end(error: SessionError): void {
    this.lost = true;
    clearTimeout(this.timer);
    this.requests.failAll(error);
  }

  /** Closes the connection, also one that the client is about to open. */
  private discard(): void {
    this.connected = false;
    this.internals.cutConnection();
    setTimeout(() => this.internals.cutConnection(), 2 * PAUSE).unref();
  }
}

/** Why a request has no answer. */
export class SessionError extends Error {
  override readonly name = 'SessionError';

  constructor(
    message: string,
    /** Whether the server refuses the session: another one would fare no better. */
    readonly refused = false,
  ) {
    super(message);
  }
}

interface Watch {
  readonly listeners: Set<() => void>;
  /** Whether the node was there. */
  readonly placed: Promise<boolean>;
}

/**
 * Tells of deleted nodes, in one session. A watch of the children of a node that has none fires when the node is
 * deleted, and, unlike a watch of its data, not when its owner writes to it. The library would keep one listener for
 * each call; here one watch serves all listeners of a node.
 */
class DeletionWatches {
  private readonly watches = new Map<string, Watch>();

  constructor(private readonly requests: ZooKeeperRequests) {}

  /**
   * Calls `listener` once when the node is deleted. Answers `false`, and never calls it, if the node is gone already.
   */
  async add(path: string, listener: () => void): Promise<boolean> {
    const watch = this.watches.get(path) ?? this.place(path);
    watch.listeners.add(listener);
    return watch.placed;
  }

  remove(path: string, listener: () => void): void {
    this.watches.get(path)?.listeners.delete(listener);
  }

  private place(path: string): Watch {
    const listeners = new Set<() => void>();
    const fired = () => {
      this.watches.delete(path);
      for (const listener of listeners) listener();
    };
    const placed = this.requests.children(path, fired).then(
      () => true,
      (error: unknown) => {
        this.watches.delete(path);
        unless(Exception.NO_NODE)(error);
        return false;
      },
    );
    const watch = { listeners, placed };
    this.watches.set(path, watch);
    return watch;
  }
}

/** The shortest time (ms) in which a server must answer. */
const LEAST_ATTEMPT = 100;
/** In the end, each server has at least this long (ms). */
const LONGEST_ATTEMPT = 1_000;

/**
 * Limits how long each server may take to answer a new connection. One round through all servers fits into the wait of
 * a request, and into what is left of the trusted time of a session when its server has fallen silent, so that the
 * silent ones among them do not hide one that works. Each round in which all were silent makes the next twice as long:
 * all of them may be slow.
 */
export class ServerAttempts {
  /** Whether the server has yet to answer on the connection that is open, or about to be. */
  underWay = true;
  /** How many attempts have used up their time since a server has answered. A refusal at once tells of no slow one. */
  private failed = 0;
  /** When (monotonic, ms) it began. */
  startedAt = performance.now();

  /** @param patience how long (ms) a request waits for a connection */
  constructor(
    private readonly servers: number,
    private readonly patience: number,
  ) {}

  /** When (monotonic, ms) the next server is tried. `rest`: what is left of a session whose server is silent. */
  endsAt(rest: number): number {
    const first = Math.max(LEAST_ATTEMPT, Math.min(this.patience, rest) / this.servers);
    const rounds = Math.floor(this.failed / this.servers);
    return this.startedAt + Math.min(first * 2 ** rounds, Math.max(LONGEST_ATTEMPT, rest));
  }

  /** The connection has ended; the client connects to the next server. */
  next(rest: number): void {
    if (this.underWay && performance.now() >= this.endsAt(rest)) this.failed += 1;
    this.underWay = true;
    this.startedAt = performance.now();
  }

  answered(): void {
    this.underWay = false;
    this.failed = 0;
  }
}
