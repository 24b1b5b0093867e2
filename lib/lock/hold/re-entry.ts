import { LockTimeoutError, LockUpgradeError } from '../../errors/lock-errors.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { QueueingBackend } from '../backend/queueing-backend.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { Caller } from '../waiting/caller.js';
import type { HeldPart } from './held-lock.js';
import type { HoldContext } from './hold-context.js';

/**
 * Re-enters the holds around the caller: takes the turn of each name that one of them has, and adds its lease to
 * `parts`. Returns the names that none of them has.
 *
 * @throws LockUpgradeError when one of them has a name to read, and the caller wants to write
 * @throws LockTimeoutError when the wait for a turn is over
 * @throws LockLostError when the hold around the caller was lost
 */
export async function reenter(
  context: HoldContext,
  backend: QueueingBackend,
  names: readonly string[],
  caller: Caller,
  parts: HeldPart[],
): Promise<readonly string[]> {
  const missing: string[] = [];
  for (const name of names) {
    const part = await reenterOne(context, backend, name, caller);
    if (part) parts.push(part);
    else missing.push(name);
  }
  return missing;
}

async function reenterOne(
  context: HoldContext,
  backend: QueueingBackend,
  name: string,
  caller: Caller,
): Promise<HeldPart | undefined> {
  for (;;) {
    const scope = context.covering(backend, name);
    const part = scope?.hold?.partOf(backend, name);
    if (!scope || !part) return undefined;
    const { lease } = part;
    const reads = lease.options.mode === 'read';
    if (reads && caller.options.mode === 'write') throw new LockUpgradeError([name]);
    const endTurn = reads ? noTurn : await scope.takeTurn(name, caller);
    if (!endTurn) continue;
    if (!lease.lost && reads === (lease.options.mode === 'read')) return { backend, lease, endTurn };
    endTurn();
    // While it waited for its turn, the hold around it may have ended and left the name to readers.
    if (lease.lost) throw lease.lost;
  }
}

/** Nested holds that read need not take turns. */
function noTurn(): void {}

/** Extends those re-entered leases without renewal that would end before the `ttl` of the nested hold. */
export async function extendForNested(parts: readonly HeldPart[], { ttl }: ResolvedLockOptions): Promise<void> {
  for (const { backend, lease } of parts) {
    if (lease.options.renewal || lease.remaining() >= ttl) continue;
    await backend.extend(lease, ttl);
    if (lease.lost) throw lease.lost;
  }
}

/**
 * Refuses a call with `reentrant: false` for a name that a hold around it has, because the call would wait for the end
 * of that hold, which ends only after the call.
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
