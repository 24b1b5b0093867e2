import type {
  HitAnswer,
  HitRequest,
  RateLimitStore,
  TakeAnswer,
  TakeRequest,
} from '../../../contracts/primitive-stores.js';
import type { Pending } from '../../../contracts/store.js';
import { UNLINK, integerOf, type RedisInteger } from '../connection/redis-script.js';
import { ScriptBatch } from '../connection/script-batch.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { primitiveKey } from './primitive-key.js';
import { HIT, PEEK, takeScript, takeShareScript } from './rate-limit.lua.js';

/**
 * Rate limits on Redis: `rate:{<key>}:<limit>`, after the prefix. The braces put all limits of a key into one Cluster
 * slot.
 */
export class RedisRateLimitStore implements RateLimitStore {
  /** By the number of limits of a call: the script differs by it. */
  private readonly takes: ScriptBatch[] = [];
  private readonly shares: ScriptBatch[] = [];
  private readonly hits: ScriptBatch;

  constructor(
    private readonly scripts: ScriptRunner,
    private readonly prefix: string | undefined,
  ) {
    this.hits = new ScriptBatch(scripts, HIT);
  }

  take(request: TakeRequest): Pending<TakeAnswer> {
    const { limits, least, most } = request;
    if (least !== most) return this.takeShare(request);
    const args: number[] = [];
    for (const { interval, capacity } of limits) args.push(most * interval, capacity);
    const batch = (this.takes[limits.length] ??= new ScriptBatch(this.scripts, takeScript(limits.length)));
    return batch.run(undefined, this.keysOf(request), args, (reply) => {
      if (!Array.isArray(reply)) return { granted: most, used: [integerOf(reply)] };
      const [taken, ...used] = (reply as RedisInteger[]).map(integerOf);
      return { granted: taken === 1 ? most : 0, used };
    });
  }

  async peek(request: Pick<TakeRequest, 'key' | 'limits'>): Promise<readonly number[]> {
    const capacities = request.limits.map(({ capacity }) => capacity);
    const used = await this.scripts.run(PEEK, this.keysOf(request), capacities);
    return (used as RedisInteger[]).map(integerOf);
  }

  reset(request: Pick<TakeRequest, 'key' | 'limits'>): Promise<unknown> {
    return this.scripts.run(UNLINK, this.keysOf(request), []);
  }

  hit({ key, window, limit, block }: HitRequest): Pending<HitAnswer> {
    const keys = [`${primitiveKey('rate', this.prefix, key)}:hits`];
    return this.hits.run(undefined, keys, [window, limit, block], hitAnswer);
  }

  private takeShare(request: TakeRequest): Pending<TakeAnswer> {
    const { limits, least, most } = request;
    const args = [least, most];
    for (const { interval, capacity } of limits) args.push(interval, capacity);
    const batch = (this.shares[limits.length] ??= new ScriptBatch(this.scripts, takeShareScript(limits.length)));
    return batch.run(undefined, this.keysOf(request), args, (reply) => {
      const [granted = 0, ...used] = (reply as RedisInteger[]).map(integerOf);
      return { granted, used };
    });
  }

  private keysOf({ key, limits }: Pick<TakeRequest, 'key' | 'limits'>): string[] {
    const ofKey = primitiveKey('rate', this.prefix, key);
    const keys: string[] = [];
    for (const { id } of limits) keys.push(`${ofKey}:${id}`);
    return keys;
  }
}

function hitAnswer(reply: unknown): HitAnswer {
  const [hits = 0, left = 0, blocked] = (reply as RedisInteger[]).map(integerOf);
  return { hits, left, blocked: blocked === 1 };
}
