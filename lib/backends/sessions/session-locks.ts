import type {
  AcquireAnswer,
  AcquireRequest,
  Busy,
  MintRequest,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
  TokenRange,
  LockState,
  LockTraits,
} from '../../contracts/lock-backend.js';
import { SessionSlot, type SessionStore } from './session-slot.js';

/** Gets the tickets whose session has ended. */
export type LossListener = (tickets: readonly string[], why: Error) => void;

/** A lock backend whose locks end with the session that took them, and whose store tells who holds one by `inspect`. */
export abstract class SessionLockBackend {
  readonly traits: LockTraits = { lease: 'session', fencing: 'strict', leastLease: 1 };
  protected abstract readonly locks: SessionLocks;

  abstract inspect(request: NameRequest): Promise<LockState | null>;

  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const answer = await this.locks.acquire(request);
    if (answer.status === 'granted' || answer.owner !== '') return answer;
    const state = await this.inspect(request);
    return { ...answer, owner: state?.owner ?? '' };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return this.locks.renew(requests);
  }

  async release(request: TicketRequest): Promise<ReleaseAnswer> {
    const answer = await this.locks.release(request);
    if (answer.status !== 'gone') return answer;
    return (await this.inspect(request)) === null ? answer : { ...answer, status: 'taken' };
  }

  mint(request: MintRequest): Promise<TokenRange | null> {
    return this.locks.mint(request);
  }

  onLost(listener: LossListener): () => void {
    return this.locks.onLost(listener);
  }
}

/**
 * The longest lease (ms) that it grants, though a session has no end: the renewals ask whether the session lives, so
 * that one that died without a word is noticed within this time.
 */
const LEASE = 5_000;

/** The locks of one process on a few shared sessions; each key has its session. */
export class SessionLocks {
  private readonly slots: readonly SessionSlot[];
  private readonly listeners = new Set<LossListener>();

  constructor(
    store: SessionStore,
    private readonly keyOf: (request: NameRequest) => string,
    sessions: number,
  ) {
    const lost: LossListener = (tickets, why) => {
      for (const listener of this.listeners) listener(tickets, why);
    };
    this.slots = Array.from({ length: sessions }, () => new SessionSlot(store, lost));
  }

  acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const { ticket, ttl, leastToken: least = 0 } = request;
    const key = this.keyOf(request);
    return this.slotOf(key).run(async (session, holds): Promise<AcquireAnswer> => {
      const hold = holds.get(key);
      if (hold && hold.ticket !== ticket) return busy(hold.ticket);
      let tokens = hold ? await session.mint(least, key) : await session.take(key, ticket);
      if (!tokens) return busy('');
      holds.set(key, { ticket });
      if (tokens.first < least) tokens = await session.mint(least, key);
      return { status: 'granted', tokens, remaining: Math.min(ttl, LEASE), waiting: undefined };
    });
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return requests.map(async (request): Promise<RenewAnswer> => {
      const key = this.keyOf(request);
      const slot = this.slotOf(key);
      await slot.check();
      const owned = slot.holds.get(key)?.ticket === request.ticket;
      return owned ? { status: 'renewed', remaining: LEASE } : { status: 'not-owner' };
    });
  }

  release(request: TicketRequest): Promise<ReleaseAnswer> {
    const { ticket } = request;
    const key = this.keyOf(request);
    return this.slotOf(key).run(async (session, holds): Promise<ReleaseAnswer> => {
      const hold = holds.get(key);
      if (hold?.ticket !== ticket) return { status: hold ? 'taken' : 'gone', resent: false };
      await session.free(key);
      holds.delete(key);
      return { status: 'released', resent: false };
    });
  }

  async mint(request: MintRequest): Promise<TokenRange | null> {
    const key = this.keyOf(request);
    return this.slotOf(key).run(async (session, holds) =>
      holds.get(key)?.ticket === request.ticket ? session.mint(request.leastToken, key) : null,
    );
  }

  /** The ticket of this process that has the name. */
  ownerHere(request: NameRequest): string | undefined {
    const key = this.keyOf(request);
    return this.slotOf(key).holds.get(key)?.ticket;
  }

  onLost(listener: LossListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.listeners.clear();
    await Promise.all(this.slots.map((slot) => slot.close()));
  }

  private slotOf(key: string): SessionSlot {
    let hash = 0;
    for (let index = 0; index < key.length; index++) hash = (hash * 31 + key.charCodeAt(index)) >>> 0;
    return this.slots[hash % this.slots.length] as SessionSlot;
  }
}

/** The lease of another session has no end that the store could tell. */
function busy(owner: string): Busy {
  return { status: 'busy', owner, remaining: Infinity };
}
