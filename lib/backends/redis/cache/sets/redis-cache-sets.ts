import type { CacheSets } from '../../../../contracts/cache-store.js';
import { integerOf } from '../../scripting/redis-replies.js';
import type { ScriptRunner } from '../../scripting/script-runner.js';
import type { RedisCacheKeys } from '../redis-cache-keys.js';
import { ADD_TO_SET } from './add-to-set.lua.js';

export class RedisCacheSets implements CacheSets {
  constructor(
    private readonly scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
  ) {}

  async add(key: string, members: readonly string[], ttl: number): Promise<number> {
    return Number(await this.scripts.run(ADD_TO_SET, [this.keys.set(key)], [ttl === Infinity ? '' : ttl, ...members]));
  }

  async remove(key: string, members: readonly string[]): Promise<number> {
    if (members.length === 0) return 0;
    return integerOf(await this.scripts.command((client) => client.srem(this.keys.set(key), [...members])));
  }

  async has(key: string, member: string): Promise<boolean> {
    return integerOf(await this.scripts.command((client) => client.sismember(this.keys.set(key), member))) === 1;
  }

  async members(key: string): Promise<readonly string[]> {
    // A client of the application may answer a Set.
    return [...(await this.scripts.command((client) => client.smembers(this.keys.set(key))))];
  }
}
