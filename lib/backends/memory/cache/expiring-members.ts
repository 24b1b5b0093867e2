import { ExpiringMap } from '../expiring-map.js';

/** Sets whose members expire one by one. Times are in ms. */
export class ExpiringMembers {
  /** A set expires with the last of its members. */
  private readonly sets = new ExpiringMap<ExpiringMap<true>>();

  /** Makes the member expire `ttl` from now; `false` when it was a member already. */
  add(key: string, member: string, ttl: number): boolean {
    const set = this.sets.get(key) ?? new ExpiringMap<true>();
    const isNew = !set.get(member);
    set.set(member, true, ttl);
    this.sets.set(key, set, Math.max(ttl, this.sets.remaining(key) ?? 0));
    return isNew;
  }

  /** Keeps the member for at least `ttl` from now; `false` when it is not a member. */
  prolong(key: string, member: string, ttl: number): boolean {
    const found = this.sets.get(key)?.prolong(member, ttl) ?? false;
    if (found) this.sets.prolong(key, ttl);
    return found;
  }

  /** `false` when it was not a member. */
  remove(key: string, member: string): boolean {
    const set = this.sets.get(key);
    if (!set?.get(member)) return false;
    set.delete(member);
    if (set.size === 0) this.sets.delete(key);
    return true;
  }

  has(key: string, member: string): boolean {
    return this.sets.get(key)?.get(member) ?? false;
  }

  members(key: string): string[] {
    return [...(this.sets.get(key)?.keys() ?? [])];
  }

  size(key: string): number {
    return this.sets.get(key)?.size ?? 0;
  }
}
