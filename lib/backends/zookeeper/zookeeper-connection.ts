import type { ZooKeeperSettings } from './zookeeper-options.js';
import { SessionError, ZooKeeperSession } from './zookeeper-session.js';

/** How long (ms) a request waits for a connection, unless the module says otherwise. */
const PATIENCE = 1_000;

/** What the locks do when their session changes. */
interface SessionUser {
  /** A connection is open, the first one or another one, of this session or of a new one. */
  connected(session: ZooKeeperSession): void;
  lost(session: ZooKeeperSession, why: Error): void;
}

/** One session at a time, opened at the first use, and replaced when it is lost. */
export class ZooKeeperConnection {
  /** How long (ms) a request waits for a connection. */
  patience = PATIENCE;
  private session: ZooKeeperSession | undefined;
  private waiting: Waiting[] = [];
  private sweeper: NodeJS.Timeout | undefined;
  private closed = false;
  /** Why the last session was lost; `undefined` once another one is connected. */
  private lastLoss: Error | undefined;

  constructor(
    private readonly settings: ZooKeeperSettings,
    private readonly user: SessionUser,
  ) {}

  /** The session, if it is connected. */
  get current(): ZooKeeperSession | undefined {
    return this.session?.connected ? this.session : undefined;
  }

  /** Waits for a connection. */
  opened(): Promise<ZooKeeperSession> {
    if (this.closed) return Promise.reject(new SessionError('the backend is closed'));
    const { current } = this;
    if (current) return Promise.resolve(current);
    this.open();
    this.sweeper ??= setTimeout(() => this.sweep(), this.patience).unref();
    return new Promise((resolve, reject) => {
      this.waiting.push({ since: performance.now(), resolve, reject });
    });
  }

  /** What is wrong with the connection; `undefined` if nothing is known to be. */
  get trouble(): string | undefined {
    const { session } = this;
    if (!session || this.lastLoss) return this.lastLoss?.message;
    if (!session.connected) return 'no server can be reached';
    return session.silence > session.timeout / 2 ? `no answer for ${Math.round(session.silence)} ms` : undefined;
  }

  async close(): Promise<void> {
    this.closed = true;
    clearTimeout(this.sweeper);
    this.rejectAll(new SessionError('the backend is closed'));
    const { session } = this;
    this.session = undefined;
    await session?.close();
  }

  private open(): void {
    if (this.session || this.closed) return;
    const session: ZooKeeperSession = new ZooKeeperSession(this.settings, this.patience, {
      connected: () => this.connected(session),
      lost: (why) => this.lost(session, why),
    });
    this.session = session;
  }

  private connected(session: ZooKeeperSession): void {
    this.lastLoss = undefined;
    this.user.connected(session);
    for (const { resolve } of this.waiting.splice(0)) resolve(session);
  }

  private lost(session: ZooKeeperSession, why: SessionError): void {
    if (this.session !== session) return;
    this.session = undefined;
    this.lastLoss = why;
    if (why.refused) this.rejectAll(why);
    this.user.lost(session, why);
    if (!why.refused) this.open();
  }

  /** Rejects those that have waited for too long: the store may be away for hours. */
  private sweep(): void {
    this.sweeper = undefined;
    const since = performance.now() - this.patience;
    const late = this.waiting.filter((each) => each.since <= since);
    this.waiting = this.waiting.filter((each) => each.since > since);
    for (const { reject } of late) reject(new SessionError(this.trouble ?? 'no connection'));
    const [first] = this.waiting;
    if (first) this.sweeper = setTimeout(() => this.sweep(), Math.ceil(first.since - since) + 1).unref();
  }

  private rejectAll(error: Error): void {
    for (const { reject } of this.waiting.splice(0)) reject(error);
  }
}

interface Waiting {
  readonly since: number;
  readonly resolve: (session: ZooKeeperSession) => void;
  readonly reject: (error: Error) => void;
}
