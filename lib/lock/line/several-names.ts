import type { TokenRange } from '../../contracts/lock-requests.js';
import { isThrown } from '../../errors/limited-log.js';
import { LockBackendError, LockTimeoutError } from '../../errors/lock-errors.js';
import { currentInstant } from '../../timing/clock.js';
import { Lease } from '../grant/lease.js';
import type { BackendCalls } from '../grant/store.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { Caller } from './caller.js';
import type { Contenders } from './lines.js';
import type { QueueingBackend } from './named-backend.js';
import { tryOnce } from './polling.js';

/** After this number of refusals the names are taken one by one. */
const REFUSALS = 3;
/** How long (ms) it waits before it asks again after an error. */
const PAUSE_AFTER_ERROR = 50;

/** Takes several names for one caller, under one fencing token. */
export class SeveralNames {
  /** The owner of a busy name in the last answer. */
  private busy: { readonly remaining: number; readonly owner?: string } | undefined = undefined;

  constructor(
    private readonly contenders: Contenders,
    private readonly names: readonly string[],
    private readonly options: ResolvedLockOptions,
    private readonly caller: Caller,
  ) {}

  /**
   * Tries all names in one step. If one is busy, waits in the queue of that one; once it holds it, tries the rest in
   * one step, and never waits while it holds a name. After three refusals takes the names one by one in sorted order,
   * in which no two callers can wait for each other: so the caller is served although single names stay busy.
   */
  async take(): Promise<readonly Lease[]> {
    if (!this.backend.calls.store.acquireSeveral) return this.oneByOne();
    let first: string | undefined;
    for (let refusals = 0; refusals < REFUSALS;) {
      try {
        const taken = await this.tryFrom(first);
        if (typeof taken !== 'string') return taken;
        first = taken;
        refusals += 1;
      } catch (error) {
        const fails = isThrown(error, LockBackendError) && !this.backend.calls.goesOnRefusing(error);
        const again = fails && this.caller.remaining() > 0 && !this.caller.cancellation;
        if (!again) throw error;
        await this.caller.sleep(PAUSE_AFTER_ERROR);
        first = undefined;
      }
    }
    return this.oneByOne();
  }

  /** Waits for `first`, then tries the rest once. Returns the busy name, if there is one, and then holds none. */
  private async tryFrom(first: string | undefined): Promise<readonly Lease[] | string> {
    const taken: Lease[] = [];
    try {
      if (first !== undefined) taken.push(await this.takeOne(first));
      const rest = this.names.filter((name) => name !== first);
      const answer = await tryOnce(
        this.contenders,
        rest,
        this.options,
        this.caller,
        (taken[0]?.fencingToken ?? -1) + 1,
      );
      if (answer instanceof Lease) {
        taken.push(answer);
        if (taken.length === 1 || (await this.join(taken))) return taken;
        await this.giveBack(taken);
        return first as string;
      }
      this.busy = answer;
      await this.giveBack(taken);
      if (this.caller.remaining() > 0) return answer.name ?? (rest[0] as string);
      throw this.timedOut();
    } catch (error) {
      void this.giveBack(taken);
      throw error;
    }
  }

  private async oneByOne(): Promise<readonly Lease[]> {
    for (;;) {
      const taken: Lease[] = [];
      try {
        for (const name of this.names) taken.push(await this.takeOne(name));
        if (await this.join(taken)) return taken;
      } catch (error) {
        void this.giveBack(taken);
        throw error;
      }
      await this.giveBack(taken);
    }
  }

  private async giveBack(taken: Lease[]): Promise<void> {
    await Promise.all(taken.splice(0).map((lease) => lease.source.takeBack(lease, true)));
  }

  /** Renews the lease while the caller waits for the other names; the limits of its hold begin with the hold. */
  private async takeOne(name: string): Promise<Lease> {
    this.caller.throwIfCancelled();
    const { ttl } = this.options;
    const renewal = this.options.renewal ?? { interval: ttl / 3, timeout: undefined };
    const wait = Math.ceil(this.caller.remaining());
    if (wait === 0 && this.options.wait > 0) throw this.timedOut();
    try {
      return await this.contenders.take(
        name,
        {
          ...this.options,
          renewal,
          ceiling: Infinity,
          maxHold: undefined,
          limited: false,
          minHold: 0,
          lease: ttl,
          wait,
        },
        this.caller,
      );
    } catch (error) {
      if (!isThrown(error, LockTimeoutError)) throw error;
      this.busy = { remaining: error.remaining };
      throw this.timedOut();
    }
  }

  private timedOut(): LockTimeoutError {
    return new LockTimeoutError(this.names, { remaining: 0, ...this.busy, waited: this.caller.waited() });
  }

  /**
   * Gives the hold the largest fencing token: later tokens of every name must be above it. Returns `false` when a lease
   * was lost meanwhile: the caller, which holds nothing yet, takes the names again.
   */
  private async join(leases: readonly Lease[]): Promise<boolean> {
    const largest = Math.max(...leases.map((lease) => lease.fencingToken));
    const smaller = leases.filter((lease) => lease.fencingToken < largest);
    const limit = this.caller.limitOf(this.backend.calls);
    await Promise.all(smaller.map((lease) => raiseTokens(this.backend.calls, lease, largest, limit)));
    const now = currentInstant();
    for (const lease of leases) {
      lease.begin(this.options, now);
      this.backend.watchdog.watch(lease.grant);
    }
    return leases.every((lease) => lease.held);
  }

  private get backend(): QueueingBackend {
    return this.contenders.backend;
  }
}

/**
 * Gives a hold of several names one fencing token: the largest of its leases. If the hold shares leases with holds
 * around it, those holds get the token too, and so does every lease of theirs, because its later tokens must be larger.
 * `limit` is how long each request may take (ms).
 *
 * @throws LockBackendError when the backend does not confirm it
 */
export async function shareOneToken(calls: BackendCalls, own: readonly Lease[], limit: number): Promise<void> {
  // Repeats, because another nested hold may raise a token meanwhile, or one of them end.
  for (;;) {
    const leases = connected(own);
    const largest = Math.max(...[...leases].map((lease) => lease.fencingToken));
    const smaller = [...leases].filter((lease) => lease.fencingToken < largest && !lease.isOver);
    if (smaller.length === 0) {
      for (const lease of leases) lease.raiseHolders(largest);
      return;
    }
    await Promise.all(smaller.map((lease) => raiseTokens(calls, lease, largest, limit)));
  }
}

/**
 * Raises the fencing token of the lease to `token`, and makes the backend mint larger ones for every later grant of its
 * names. Marks the lease as lost if the backend answers that its ticket is not the owner.
 *
 * @throws LockBackendError when the backend does not confirm it
 */
async function raiseTokens(calls: BackendCalls, lease: Lease, token: number, limit: number): Promise<void> {
  const { grant } = lease;
  const { names, ticket } = grant;
  const leastToken = token + 1;
  const minted = await Promise.all(
    names.map(
      (name) =>
        new Promise<TokenRange | null>((resolve, reject) => {
          calls.mint([name], ticket, leastToken, resolve, reject, limit);
        }),
    ),
  );
  const [tokens] = minted;
  if (!tokens || minted.includes(null)) return lease.lose('taken');
  grant.addTokens(tokens);
  grant.skipTokensBelow(leastToken);
  lease.raiseToken(token);
}

/** These leases, those that share a hold with them, and so on. */
function connected(leases: readonly Lease[]): ReadonlySet<Lease> {
  const found = new Set(leases);
  // The loop also visits what it adds.
  for (const lease of found) for (const each of lease.leasesOfHolders()) found.add(each);
  return found;
}
