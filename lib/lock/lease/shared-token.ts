import type { Lease } from './lease.js';
import type { HeldPart } from '../hold/held-lock.js';
import type { NamedBackend } from '../backend/named-backend.js';

/**
 * One hold of several names shows one token to what each of them protects: the largest. Where it rests on leases of
 * holds around it, later grants of their names must have larger ones, and so must those of all that these holds rest
 * on: they show it, too, when the hold has ended. `limit` is how many ms each request may take.
 *
 * @throws LockBackendError when the backend does not confirm it
 */
export async function showOneToken(backend: NamedBackend, parts: readonly HeldPart[], limit: number): Promise<void> {
  const own = parts.map(({ lease }) => lease);
  // Another nested hold may raise one of them meanwhile.
  for (;;) {
    const leases = connected(own);
    const largest = Math.max(...[...leases].map((lease) => lease.fencingToken));
    const smaller = [...leases].filter((lease) => lease.fencingToken < largest && !lease.isLost);
    if (smaller.length === 0) {
      for (const lease of leases) lease.raiseHolders(largest);
      return;
    }
    await Promise.all(smaller.map((lease) => raiseTokens(backend, lease, largest, limit)));
  }
}

/**
 * Holds that come to rest on the lease show `token` from now on, and every later grant of its names has a larger one.
 * The lease is lost where it is not ours any more.
 *
 * @throws LockBackendError when the backend does not confirm it
 */
export async function raiseTokens(backend: NamedBackend, lease: Lease, token: number, limit: number): Promise<void> {
  const { grant } = lease;
  const { names, ticket } = grant;
  const leastToken = token + 1;
  const { calls } = backend;
  const { queue } = calls.backend;
  if (queue) {
    const minted = await Promise.all(names.map((name) => calls.mint(queue, name, ticket, leastToken, limit)));
    const [tokens] = minted;
    if (!tokens || minted.includes(null)) return lease.lose('taken');
    grant.addTokens(tokens);
    grant.skipTokensBelow(leastToken);
  } else {
    // The names are ours already: this grants them again, with a token as large as it must be.
    const ttl = Math.ceil(Math.max(lease.options.ttl, grant.remaining()));
    const answer = await calls.bounded('acquire', names, calls.acquire({ names, ticket }, ttl, leastToken), limit);
    if (!answer.granted) return lease.lose('taken');
  }
  lease.raiseToken(token);
}

/** These and all that holds rest on together with them. */
function connected(leases: readonly Lease[]): ReadonlySet<Lease> {
  const found = new Set(leases);
  // A set that grows while it is gone through.
  for (const lease of found) for (const each of lease.leasesOfHolders()) found.add(each);
  return found;
}
