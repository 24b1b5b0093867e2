import type { Pending } from '../../../../contracts/pending.js';
import type {
  HitAnswer,
  HitRequest,
  RateLimitStore,
  TakeAnswer,
  TakeRequest,
} from '../../../../contracts/primitives/rate-limit-store.js';
import { integerOf, type RedisInteger } from '../../scripting/redis-replies.js';
import { ScriptBatch } from '../../scripting/script-batch.js';
import type { ScriptRunner } from '../../scripting/script-runner.js';
import { primitiveKey } from '../primitive-key.js';
import { HIT } from './hit.lua.js';
import { PEEK } from './peek.lua.js';
import { takeScript } from './take.lua.js';

/**
 * Rate limits on Redis: `rate:{<key>}:<limit>`, after the prefix. The braces put all limits of a key into one Cluster
 * slot.
 */
export class RedisRateLimitStore implements RateLimitStore {
  /** By the number of limits of a call. */
  private readonly takes = new Map<number, ScriptBatch>();
  private readonly hits: ScriptBatch;

  constructor(
    private readonly scripts: ScriptRunner,
    private readonly prefix: string | undefined,
  ) {
    this.hits = new ScriptBatch(scripts, HIT);
  }

  take(request: TakeRequest): Pending<TakeAnswer> {
    const { limits, least, most } = request;
    const args = [least, most];
    for (const { interval, capacity } of limits) args.push(interval, capacity);
    return this.takesOf(limits.length).run(undefined, this.keysOf(request), args, (reply) => {
      if (!Array.isArray(reply)) return { granted: most, used: [integerOf(reply as RedisInteger)] };
      const [granted = 0, ...used] = (reply as RedisInteger[]).map(integerOf);
      return { granted, used };
    });
  }

  async peek(request: Pick<TakeRequest, 'key' | 'limits'>): Promise<readonly number[]> {
    const capacities = request.limits.map(({ capacity }) => capacity);
    const used = await this.scripts.run(PEEK, this.keysOf(request), capacities);
    return (used as RedisInteger[]).map(integerOf);
  }

  reset(request: Pick<TakeRequest, 'key' | 'limits'>): Promise<unknown> {
    return this.scripts.command((client) => client.unlink(this.keysOf(request)));
  }

  hit({ key, window, limit, block }: HitRequest): Pending<HitAnswer> {
    return this.hits.run(undefined, [this.keyOf(key, 'hits')], [window, limit, block], hitAnswer);
  }

  private takesOf(limits: number): ScriptBatch {
    let batch = this.takes.get(limits);
    if (!batch) {
      batch = new ScriptBatch(this.scripts, takeScript(limits));
      this.takes.set(limits, batch);
    }
    return batch;
  }

  private keysOf({ key, limits }: Pick<TakeRequest, 'key' | 'limits'>): string[] {
    return limits.map(({ id }) => this.keyOf(key, id));
  }

  private keyOf(key: string, id: string): string {
    return `${primitiveKey('rate', { prefix: this.prefix, name: key })}:${id}`;
  }
}

function hitAnswer(reply: unknown): HitAnswer {
  const [hits = 0, left = 0, blocked] = (reply as RedisInteger[]).map(integerOf);
  return { hits, left, blocked: blocked === 1 };
}
