import type {
  AcquireAnswer,
  AcquireRequest,
  LockState,
  LockTraits,
  MintRequest,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
  TokenRange,
} from '../../contracts/lock-backend.js';
import type { SessionLocks } from './session-locks.js';

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

  onLost(listener: (tickets: readonly string[], why: Error) => void): () => void {
    return this.locks.onLost(listener);
  }
}
