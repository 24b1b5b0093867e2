import type { CacheExpiringSets, CacheSets } from '../../../contracts/cache-store.js';
import { ExpiringMap } from '../expiring-map.js';
import { ExpiringMembers } from './expiring-members.js';
import type { MemoryConnection } from './memory-connection.js';

export class MemoryCacheSets implements CacheSets {
  private readonly sets = new ExpiringMap<Set<string>>();

  constructor(private readonly connection: MemoryConnection) {}

  add(key: string, members: readonly string[], ttl: number): Promise<number> {
    return this.connection.run(() => {
      const set = this.sets.get(key) ?? new Set<string>();
      const before = set.size;
      for (const member of members) set.add(member);
      if (set.size > 0) this.sets.set(key, set, ttl);
      return set.size - before;
    });
  }

  remove(key: string, members: readonly string[]): Promise<number> {
    return this.connection.run(() => {
      const set = this.sets.get(key);
      const removed = members.filter((member) => set?.delete(member)).length;
      if (set?.size === 0) this.sets.delete(key);
      return removed;
    });
  }

  has(key: string, member: string): Promise<boolean> {
    return this.connection.run(() => this.sets.get(key)?.has(member) ?? false);
  }

  members(key: string): Promise<readonly string[]> {
    return this.connection.run(() => [...(this.sets.get(key) ?? [])]);
  }
}

export class MemoryCacheExpiringSets implements CacheExpiringSets {
  private readonly sets = new ExpiringMembers();

  constructor(private readonly connection: MemoryConnection) {}

  add(key: string, members: readonly string[], ttl: number): Promise<number> {
    return this.connection.run(() => members.filter((member) => this.sets.add(key, member, ttl)).length);
  }

  remove(key: string, members: readonly string[]): Promise<number> {
    return this.connection.run(() => members.filter((member) => this.sets.remove(key, member)).length);
  }

  has(key: string, member: string): Promise<boolean> {
    return this.connection.run(() => this.sets.has(key, member));
  }

  members(key: string): Promise<readonly string[]> {
    return this.connection.run(() => this.sets.members(key));
  }

  size(key: string): Promise<number> {
    return this.connection.run(() => this.sets.size(key));
  }
}
