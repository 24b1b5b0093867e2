import assert from 'node:assert/strict';
import type { Lock } from '../../lock/lock.js';

/**
 * A resource that only one holder may use at a time, and that refuses a fencing token below the highest it has seen.
 */
export class ProtectedResource {
  uses = 0;
  private inside: string | undefined;
  private highest = 0;

  async use(lock: Pick<Lock, 'owner' | 'fencingToken'>, work: () => Promise<unknown>): Promise<void> {
    const { owner, fencingToken } = lock;
    assert.equal(this.inside, undefined, `${owner} entered while ${this.inside} was inside`);
    assert(fencingToken > this.highest, `token ${fencingToken} of ${owner} after ${this.highest}`);
    this.inside = owner;
    this.highest = fencingToken;
    await work();
    assert.equal(this.inside, owner, `${this.inside} entered while ${owner} was inside`);
    this.inside = undefined;
    this.uses += 1;
  }

  /** The token that a later holder must exceed. */
  get token(): number {
    return this.highest;
  }
}
