import type { ScheduledDeletions } from '../../../../contracts/cache-store.js';
import type { RedisInteger } from '../../scripting/redis-replies.js';
import type { ScriptRunner } from '../../scripting/script-runner.js';
import type { RedisCacheKeys } from '../redis-cache-keys.js';
import { CLAIM_DELETIONS } from './claim-deletions.lua.js';
import { FORGET_DELETIONS } from './forget-deletions.lua.js';
import { SCHEDULE_DELETIONS } from './schedule-deletions.lua.js';

/** The one key of the cache that never expires: what is due when no process runs is deleted when one does. */
export class RedisScheduledDeletions implements ScheduledDeletions {
  constructor(
    private readonly scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
  ) {}

  async schedule(keys: readonly string[], delay: number): Promise<void> {
    await this.scripts.run(SCHEDULE_DELETIONS, [this.keys.scheduled], [this.keys.channel, delay, ...keys]);
  }

  async claim(limit: number, claim: number): Promise<{ keys: readonly string[]; next: number | null }> {
    const reply = await this.scripts.run(CLAIM_DELETIONS, [this.keys.scheduled], [limit, claim]);
    const [keys, next] = reply as [string[], RedisInteger];
    return { keys, next: Number(next) === -1 ? null : Number(next) };
  }

  async done(keys: readonly string[]): Promise<void> {
    await this.scripts.run(FORGET_DELETIONS, [this.keys.scheduled], keys);
  }
}
