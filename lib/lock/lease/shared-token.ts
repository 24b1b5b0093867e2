import type { TokenRange } from '../../contracts/lock-backend.js';
import type { Lease } from './lease.js';
import type { BackendCalls } from '../backend/backend-calls.js';

/**
 * Gives a hold of several names one fencing token: the largest of its leases. If the hold shares leases with holds
 * around it, those holds get the token too, and so does every lease of theirs, because its later tokens must be larger.
 * `limit` is how long each request may take (ms).
 *
 * @throws LockBackendError when the backend does not confirm it
 */
export async function shareOneToken(calls: BackendCalls, own: readonly Lease[], limit: number): Promise<void> {
  // Repeats, because another nested hold may raise a token meanwhile.
  for (;;) {
    const leases = connected(own);
    const largest = Math.max(...[...leases].map((lease) => lease.fencingToken));
    const smaller = [...leases].filter((lease) => lease.fencingToken < largest && !lease.isLost);
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
export async function raiseTokens(calls: BackendCalls, lease: Lease, token: number, limit: number): Promise<void> {
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
