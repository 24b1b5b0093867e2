import type { TokenRange } from '../../contracts/lock-backend.js';

/** A store that keeps locks for sessions. */
export interface SessionStore {
  /** Opens a session. Calls `ended` once when it ends otherwise than by `close`. */
  open(ended: (why: Error) => void): Promise<StoreSession>;
}

/** One connection to a store whose locks end with it. It is given one call at a time. */
export interface StoreSession {
  /**
   * Takes the lock of the key if no other session has it, and returns fencing tokens above all before; `null` where it
   * is taken. It is never called for a key that this session has.
   */
  take(key: string, ticket: string): Promise<TokenRange | null>;
  free(key: string): Promise<void>;
  /** Returns fencing tokens for a key that this session has, from `least` on, above all before. */
  mint(least: number, key: string): Promise<TokenRange>;
  /** Rejects when the session has ended, or does not answer in time. */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** A lock that a session has. */
interface SessionHold {
  readonly ticket: string;
}

/** The locks of one session, by key. */
type SessionHolds = Map<string, SessionHold>;

/**
 * A place for one session at a time, which is opened at its first use and again after its end. It sends one call after
 * the other, so that what it knows of its locks is true for each: a session may take the same lock twice.
 */
export class SessionSlot {
  private sitting: Sitting | undefined;
  private closed = false;
  private last: Promise<unknown> = Promise.resolve();
  private nextCheck: Promise<void> | undefined;

  /** `lost` gets the tickets whose session has ended. */
  constructor(
    private readonly store: SessionStore,
    private readonly lost: (tickets: readonly string[], why: Error) => void,
  ) {}

  /** The locks of the session that is open now. */
  get holds(): ReadonlyMap<string, SessionHold> {
    return this.sitting?.holds ?? NOTHING_HELD;
  }

  /** Runs `work` when all work before it is done. Rejects when the session ends meanwhile, and after `close`. */
  run<T>(work: (session: StoreSession, holds: SessionHolds) => Promise<T>): Promise<T> {
    const done = this.last.then(async () => {
      if (this.closed) throw closedError();
      const sitting = (this.sitting ??= this.open());
      const session = await sitting.session;
      this.requireOpen(sitting);
      const answer = await work(session, sitting.holds);
      this.requireOpen(sitting);
      return answer;
    });
    this.last = done.catch(() => {});
    return done;
  }

  /** Rejects when the session has ended. Calls share a question until it is sent: its answer is newer than they are. */
  check(): Promise<void> {
    if (!this.nextCheck) {
      void this.last.then(() => (this.nextCheck = undefined));
      this.nextCheck = this.run((session) => session.check());
    }
    return this.nextCheck;
  }

  /** Ends the session, and opens none for calls that wait or come later. */
  async close(): Promise<void> {
    this.closed = true;
    const { sitting } = this;
    this.sitting = undefined;
    await sitting?.session.then(
      (session) => session.close(),
      () => {},
    );
  }

  private open(): Sitting {
    const session: Promise<StoreSession> = this.store.open((why) => this.ended(session, why));
    session.catch((error: Error) => this.ended(session, error));
    return { session, holds: new Map() };
  }

  private requireOpen(sitting: Sitting): void {
    if (this.sitting !== sitting) throw this.closed ? closedError() : new Error('The session has ended');
  }

  private ended(session: Promise<StoreSession>, why: Error): void {
    if (this.sitting?.session !== session) return;
    const { holds } = this.sitting;
    this.sitting = undefined;
    const tickets = [...holds.values()].map(({ ticket }) => ticket);
    if (tickets.length > 0) this.lost(tickets, why);
  }
}

/** A session, and the locks that it has: what is noted for a session after its end counts for no later one. */
interface Sitting {
  readonly session: Promise<StoreSession>;
  readonly holds: SessionHolds;
}

const NOTHING_HELD: ReadonlyMap<string, SessionHold> = new Map();

function closedError(): Error {
  return new Error('The backend is closed: the application has ended');
}
