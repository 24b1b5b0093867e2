import { LockTimeoutError } from '../../errors/lock-errors.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { WaitBudget } from '../waiting/wait-budget.js';
import type { HeldPart } from './held-lock.js';
import type { HoldContext } from './hold-context.js';

/**
 * Re-enters the holds around the caller: takes the turn of each name that one of them has, and adds it to `parts`.
 * Answers the names that none of them has.
 *
 * @throws LockTimeoutError when the wait for a turn is over
 * @throws LockLostError when the hold around was lost
 */
export async function reenter(
  context: HoldContext,
  backend: NamedBackend,
  names: readonly string[],
  budget: WaitBudget,
  parts: HeldPart[],
): Promise<readonly string[]> {
  const missing: string[] = [];
  for (const name of names) {
    const part = await reenterOne(context, backend, name, budget);
    if (part) parts.push(part);
    else missing.push(name);
  }
  return missing;
}

async function reenterOne(
  context: HoldContext,
  backend: NamedBackend,
  name: string,
  budget: WaitBudget,
): Promise<HeldPart | undefined> {
  for (;;) {
    const scope = context.covering(backend, name);
    const part = scope?.hold?.partOf(backend, name);
    if (!scope || !part) return undefined;
    const endTurn = await scope.takeTurn(name, budget);
    if (!endTurn) continue;
    if (!part.lease.lost) return { backend, lease: part.lease, endTurn };
    endTurn();
    throw part.lease.lost;
  }
}

/** Extends re-entered leases without renewal that would end before the `ttl` of the nested hold. */
export async function extendForNested(parts: readonly HeldPart[], { ttl }: ResolvedLockOptions): Promise<void> {
  for (const { backend, lease } of parts) {
    if (lease.options.renewal || lease.remaining() >= ttl) continue;
    await backend.extend(lease, ttl);
    if (lease.lost) throw lease.lost;
  }
}

/**
 * Refuses a call with `reentrant: false` for a name that a hold around it has: the hold ends after the call, and the
 * call would wait for the end of the hold.
 *
 * @throws LockTimeoutError
 */
export function refuseToWaitForOwnHold(context: HoldContext, backend: NamedBackend, names: readonly string[]): void {
  for (const name of names) {
    const hold = context.covering(backend, name)?.hold;
    if (!hold?.held) continue;
    throw new LockTimeoutError(names, {
      waited: 0,
      remaining: hold.remaining(),
      owner: hold.owner,
      remedy:
        `The call runs inside of the hold of "${name}" and would wait for itself: leave "reentrant: false" out, or call ` +
        'it when that hold has ended',
    });
  }
}
