import type { ScheduledDeletions } from '../../../../contracts/cache-store.js';
import type { RedisInteger } from '../../scripting/redis-replies.js';
import type { ScriptRunner } from '../../scripting/script-runner.js';
import type { RedisCacheKeys } from '../redis-cache-keys.js';
import { CLAIM_DELETIONS } from './claim-deletions.lua.js';
import { FORGET_DELETIONS } from './forget-deletions.lua.js';
import { RENEW_DELETIONS } from './renew-deletions.lua.js';
import { SCHEDULE_DELETIONS } from './schedule-deletions.lua.js';

/**
 * Uses the one key of the cache that never expires: a deletion that falls due while no process runs is carried out by
 * the next one.
 */
export class RedisScheduledDeletions implements ScheduledDeletions {
  constructor(
    private readonly scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
  ) {}

  async schedule(names: readonly string[], delay: number): Promise<void> {
    await this.scripts.run(SCHEDULE_DELETIONS, [this.keys.scheduled], [this.keys.channel, delay, ...names]);
  }

  async claim(limit: number, claim: number): Promise<{ names: readonly string[]; next: number | null }> {
    const reply = await this.scripts.run(CLAIM_DELETIONS, [this.keys.scheduled], [limit, claim]);
    const [names, next] = reply as [string[], RedisInteger];
    return { names, next: Number(next) === -1 ? null : Number(next) };
  }

  async renew(names: readonly string[], claim: number): Promise<void> {
    await this.scripts.run(RENEW_DELETIONS, [this.keys.scheduled], [claim, ...names]);
  }

  async done(names: readonly string[]): Promise<void> {
    await this.scripts.run(FORGET_DELETIONS, [this.keys.scheduled], names);
  }
}
