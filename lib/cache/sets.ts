import { whyNotText } from '../keys/key-part.js';
import type { Duration, EndlessDuration } from '../options/checks.js';
import { cacheOption } from '../options/option-checks.js';
import { expiringSetResource, setResource } from './invalidation/step-order.js';
import { about, timeToKeep, type KeyScope } from './key-scope.js';

type Members = string | readonly string[];

/** Sets of strings. Their keys are separate from those of values: a set and a value may have the same key. */
export class CacheSetOperations {
  /** @internal */
  constructor(private readonly scope: KeyScope) {}

  /**
   * Adds members, and returns how many are new. Keeps the whole set for `ttl` from now; `Infinity` for a set that does
   * not expire.
   *
   * @throws CacheConfigError without a `ttl`
   * @throws CacheBackendError when Redis fails
   */
  async add(key: string, members: Members, options: { ttl: EndlessDuration }): Promise<number> {
    const { calls, stepOrder } = this.scope.engine;
    const ttl = timeToKeep('sets.add', key, options);
    const full = this.scope.key(key);
    const accesses = [{ resource: setResource(full), mode: 'addition' }];
    const all = list(members);
    return stepOrder.run(accesses, () =>
      calls.run('addition to the set', full, () => calls.store.sets.add(full, all, ttl)),
    );
  }

  /** Removes members, and returns how many there were. @throws CacheBackendError when Redis fails */
  async remove(key: string, members: Members): Promise<number> {
    const { calls, stepOrder } = this.scope.engine;
    const full = this.scope.key(key);
    const accesses = [{ resource: setResource(full), mode: 'removal' }];
    const all = list(members);
    return stepOrder.run(accesses, () =>
      calls.run('removal from the set', full, () => calls.store.sets.remove(full, all)),
    );
  }

  /** @throws CacheBackendError when Redis fails */
  async has(key: string, member: string): Promise<boolean> {
    const { calls, stepOrder } = this.scope.engine;
    const full = this.scope.key(key);
    const one = single(member);
    return stepOrder.run([{ resource: setResource(full), mode: 'read' }], () =>
      calls.run('read of the set', full, () => calls.store.sets.has(full, one)),
    );
  }

  /** @throws CacheBackendError when Redis fails */
  async members(key: string): Promise<readonly string[]> {
    const { calls, stepOrder } = this.scope.engine;
    const full = this.scope.key(key);
    return stepOrder.run([{ resource: setResource(full), mode: 'read' }], () =>
      calls.run('read of the set', full, () => calls.store.sets.members(full)),
    );
  }
}

/** Sets of strings whose members expire one by one, by the clock of Redis. */
export class CacheExpiringSetOperations {
  /** @internal */
  constructor(private readonly scope: KeyScope) {}

  /**
   * Adds members, or keeps existing ones, each for `ttl` from now, and returns how many are new.
   * @throws CacheBackendError when Redis fails
   */
  async add(key: string, members: Members, ttl: Duration): Promise<number> {
    const { calls, stepOrder } = this.scope.engine;
    const full = this.scope.key(key);
    const time = about('expiringSet.add', [key], () => cacheOption.milliseconds('ttl', ttl, 1));
    const accesses = [{ resource: expiringSetResource(full), mode: 'addition' }];
    const all = list(members);
    return stepOrder.run(accesses, () =>
      calls.run('addition to the set', full, () => calls.store.expiringSets.add(full, all, time)),
    );
  }

  /** Removes members, and returns how many there were. @throws CacheBackendError when Redis fails */
  async remove(key: string, members: Members): Promise<number> {
    const { calls, stepOrder } = this.scope.engine;
    const full = this.scope.key(key);
    const accesses = [{ resource: expiringSetResource(full), mode: 'removal' }];
    const all = list(members);
    return stepOrder.run(accesses, () =>
      calls.run('removal from the set', full, () => calls.store.expiringSets.remove(full, all)),
    );
  }

  /** @throws CacheBackendError when Redis fails */
  async has(key: string, member: string): Promise<boolean> {
    const { calls, stepOrder } = this.scope.engine;
    const full = this.scope.key(key);
    const one = single(member);
    return stepOrder.run([{ resource: expiringSetResource(full), mode: 'read' }], () =>
      calls.run('read of the set', full, () => calls.store.expiringSets.has(full, one)),
    );
  }

  /** The members that have not expired. @throws CacheBackendError when Redis fails */
  async members(key: string): Promise<readonly string[]> {
    const { calls, stepOrder } = this.scope.engine;
    const full = this.scope.key(key);
    return stepOrder.run([{ resource: expiringSetResource(full), mode: 'read' }], () =>
      calls.run('read of the set', full, () => calls.store.expiringSets.members(full)),
    );
  }

  /** The number of members that have not expired. @throws CacheBackendError when Redis fails */
  async size(key: string): Promise<number> {
    const { calls, stepOrder } = this.scope.engine;
    const full = this.scope.key(key);
    return stepOrder.run([{ resource: expiringSetResource(full), mode: 'read' }], () =>
      calls.run('read of the set', full, () => calls.store.expiringSets.size(full)),
    );
  }
}

function list(members: Members): readonly string[] {
  const all = typeof members === 'string' ? [members] : members;
  if (!Array.isArray(all)) throw cacheOption.refused('members', members, 'a string or a list of strings');
  return all.map(single);
}

/** Refuses half of a surrogate pair: UTF-8 replaces every such half with the same character. */
function single(member: unknown): string {
  if (typeof member === 'string' && whyNotText(member) === undefined) return member;
  throw cacheOption.refused('members', member, 'strings of whole characters');
}
