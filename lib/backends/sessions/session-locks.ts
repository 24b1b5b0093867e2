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
  readonly traits: LockTraits = { lease: 'session', fencing: 'strict', severalKeys: false, leastLease: 1 };
  protected abstract readonly locks: SessionLocks;

  abstract inspect(request: NameRequest): Promise<LockState | null>;

  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const answer = await this.locks.acquire(request);
    if (answer.status === 'granted' || answer.owner !== '') return answer;
    const { prefix, names } = request;
    const state = await this.inspect({ prefix, name: answer.name ?? (names[0] as string) });
    return { ...answer, owner: state?.owner ?? '' };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return this.locks.renew(requests);
  }

  async release(request: TicketRequest): Promise<ReleaseAnswer> {
    const answer = await this.locks.release(request);
    if (answer.status !== 'gone') return answer;
    const { prefix, names } = request;
    const states = await Promise.all(names.map((name) => this.inspect({ prefix, name })));
    return states.every((state) => state === null) ? answer : { ...answer, status: 'taken' };
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

  /** Takes the names one after the other, and gives them back when one is taken. */
  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const { prefix, names, ticket, ttl, leastToken = 0 } = request;
    let tokens: TokenRange = { first: 0, count: 0 };
    for (const [index, name] of names.entries()) {
      const taken = await this.take({ prefix, name }, ticket, Math.max(leastToken, tokens.first));
      if ('status' in taken) {
        if (index > 0) await this.release({ prefix, names: names.slice(0, index), ticket });
        return taken;
      }
      tokens = taken;
    }
    return { status: 'granted', tokens, remaining: Math.min(ttl, LEASE), waiting: undefined };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return requests.map(async (request): Promise<RenewAnswer> => {
      const { prefix, names, ticket } = request;
      const keys = names.map((name) => this.keyOf({ prefix, name }));
      await Promise.all([...new Set(keys.map((key) => this.slotOf(key)))].map((slot) => slot.check()));
      const owned = keys.every((key) => this.slotOf(key).holds.get(key)?.ticket === ticket);
      return owned ? { status: 'renewed', remaining: LEASE } : { status: 'not-owner' };
    });
  }

  async release({ prefix, names, ticket }: TicketRequest): Promise<ReleaseAnswer> {
    const statuses = await Promise.all(names.map((name) => this.releaseOne(this.keyOf({ prefix, name }), ticket)));
    const worst = (['taken', 'gone'] as const).find((status) => statuses.includes(status));
    return { status: worst ?? 'released', resent: false };
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

  private take(request: NameRequest, ticket: string, least: number): Promise<TokenRange | Busy> {
    const key = this.keyOf(request);
    return this.slotOf(key).run(async (session, holds) => {
      const hold = holds.get(key);
      if (hold && hold.ticket !== ticket) return busy(request.name, hold.ticket);
      if (hold) return session.mint(least, key);
      const tokens = await session.take(key, ticket);
      if (!tokens) return busy(request.name, '');
      holds.set(key, { ticket });
      return tokens.first < least ? session.mint(least, key) : tokens;
    });
  }

  private async releaseOne(key: string, ticket: string): Promise<ReleaseAnswer['status']> {
    return this.slotOf(key).run(async (session, holds) => {
      const hold = holds.get(key);
      if (hold?.ticket !== ticket) return hold ? 'taken' : 'gone';
      await session.free(key);
      holds.delete(key);
      return 'released';
    });
  }

  private slotOf(key: string): SessionSlot {
    let hash = 0;
    for (let index = 0; index < key.length; index++) hash = (hash * 31 + key.charCodeAt(index)) >>> 0;
    return this.slots[hash % this.slots.length] as SessionSlot;
  }
}

/** The lease of another session has no end that the store could tell. */
function busy(name: string, owner: string): Busy {
  return { status: 'busy', name, owner, remaining: Infinity };
}
