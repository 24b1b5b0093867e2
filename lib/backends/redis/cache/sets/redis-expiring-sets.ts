import type { CacheExpiringSets } from '../../../../contracts/cache-store.js';
import type { ScriptRunner } from '../../scripting/script-runner.js';
import type { RedisScript } from '../../scripting/redis-script.js';
import type { RedisCacheKeys } from '../redis-cache-keys.js';
import { ADD_TO_EXPIRING_SET } from './add-to-expiring-set.lua.js';
import { COUNT_EXPIRING_SET } from './count-expiring-set.lua.js';
import { IS_IN_EXPIRING_SET } from './is-in-expiring-set.lua.js';
import { LIST_EXPIRING_SET } from './list-expiring-set.lua.js';
import { REMOVE_FROM_EXPIRING_SET } from './remove-from-expiring-set.lua.js';

export class RedisExpiringSets implements CacheExpiringSets {
  constructor(
    private readonly scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
  ) {}

  async add(key: string, members: readonly string[], ttl: number): Promise<number> {
    return Number(await this.run(ADD_TO_EXPIRING_SET, key, [ttl, ...members]));
  }

  async remove(key: string, members: readonly string[]): Promise<number> {
    return Number(await this.run(REMOVE_FROM_EXPIRING_SET, key, members));
  }

  async has(key: string, member: string): Promise<boolean> {
    return Number(await this.run(IS_IN_EXPIRING_SET, key, [member])) === 1;
  }

  async members(key: string): Promise<readonly string[]> {
    return (await this.run(LIST_EXPIRING_SET, key)) as string[];
  }

  async size(key: string): Promise<number> {
    return Number(await this.run(COUNT_EXPIRING_SET, key));
  }

  private run(script: RedisScript, key: string, args: readonly (string | number)[] = []): Promise<unknown> {
    return this.scripts.run(script, [this.keys.expiringSet(key)], args);
  }
}
