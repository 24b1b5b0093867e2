import type {
  AcquireAnswer,
  Busy,
  LockState,
  LockStore,
  LockTraits,
  ModuleContext,
  ReleaseAnswer,
  RenewAnswer,
} from '../../contracts/lock-backend.js';
import { SessionSlot, type SessionStore } from './session-slot.js';

export const SESSION_TRAITS: LockTraits = { lease: 'session', fencing: 'strict', leastLease: 1 };

/**
 * The longest lease (ms) that it grants, though a session has no end: the renewals ask whether the session lives, so
 * that one that died without a word is noticed within this time.
 */
const LEASE = 5_000;

/** A few sessions, which the modules of a process share; each key has its session. */
export class SessionSlots {
  private readonly slots: readonly SessionSlot[];

  /** `lost` gets the tickets whose session has ended. */
  constructor(open: SessionStore['open'], sessions: number, lost: ModuleContext['lost']) {
    this.slots = Array.from({ length: sessions }, () => new SessionSlot({ open }, lost));
  }

  of(key: string): SessionSlot {
    let hash = 0;
    for (let index = 0; index < key.length; index++) hash = (hash * 31 + key.charCodeAt(index)) >>> 0;
    return this.slots[hash % this.slots.length] as SessionSlot;
  }

  async close(): Promise<void> {
    await Promise.all(this.slots.map((slot) => slot.close()));
  }
}

/** Locks that end with the session that took them. `inspect`: the store tells who holds the lock with the key. */
export function sessionLocks(
  slots: SessionSlots,
  keyOf: (name: string) => string,
  inspect: (key: string) => Promise<LockState | null>,
): LockStore {
  return {
    async acquire({ name, ticket, ttl, leastToken: least = 0 }) {
      const key = keyOf(name);
      const answer = await slots.of(key).run(async (session, holds): Promise<AcquireAnswer> => {
        const hold = holds.get(key);
        if (hold && hold.ticket !== ticket) return busy(hold.ticket);
        let tokens = hold ? await session.mint(least, key) : await session.take(key, ticket);
        if (!tokens) return busy('');
        holds.set(key, { ticket });
        if (tokens.first < least) tokens = await session.mint(least, key);
        return { status: 'granted', tokens, remaining: Math.min(ttl, LEASE), waiting: undefined };
      });
      if (answer.status === 'granted' || answer.owner !== '') return answer;
      return busy((await inspect(key))?.owner ?? '');
    },

    renew: (requests) =>
      requests.map(async ({ name, ticket }): Promise<RenewAnswer> => {
        const key = keyOf(name);
        const slot = slots.of(key);
        await slot.check();
        const owned = slot.holds.get(key)?.ticket === ticket;
        return owned ? { status: 'renewed', remaining: LEASE } : { status: 'not-owner' };
      }),

    async release({ name, ticket }) {
      const key = keyOf(name);
      const status = await slots.of(key).run(async (session, holds): Promise<ReleaseAnswer['status']> => {
        const hold = holds.get(key);
        if (hold?.ticket !== ticket) return hold ? 'taken' : 'gone';
        await session.free(key);
        holds.delete(key);
        return 'released';
      });
      const taken = status === 'gone' && (await inspect(key)) !== null;
      return { status: taken ? 'taken' : status, resent: false };
    },

    mint({ name, ticket, leastToken }) {
      const key = keyOf(name);
      return slots.of(key).run(async (session, holds) => {
        return holds.get(key)?.ticket === ticket ? session.mint(leastToken, key) : null;
      });
    },

    inspect: ({ name }) => inspect(keyOf(name)),
  };
}

/** The lease of another session has no end that the store could tell. */
function busy(owner: string): Busy {
  return { status: 'busy', owner, remaining: Infinity };
}
