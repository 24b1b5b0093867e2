import type {
  BitsRequest,
  CacheBits,
  CacheExpiringSets,
  CacheSets,
  KeyRequest,
  RebuildRequest,
} from '../../../contracts/cache-store.js';
import { UNLINK, integerOf, isOne, type RedisInteger, type RedisScript } from '../connection/redis-script.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import {
  ADD_BITS,
  ADD_TO_EXPIRING_SET,
  ADD_TO_REBUILD,
  ADD_TO_SET,
  BEGIN_REBUILD,
  COUNT_EXPIRING_SET,
  DROP_REBUILD,
  FINISH_REBUILD,
  HAS_BITS,
  IS_IN_EXPIRING_SET,
  IS_IN_SET,
  LIST_EXPIRING_SET,
  LIST_SET,
  REMOVE_FROM_EXPIRING_SET,
  REMOVE_FROM_SET,
} from './collections.lua.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';

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
    return integerOf(await this.scripts.run(REMOVE_FROM_SET, [this.keys.set(key)], members));
  }

  async has(key: string, member: string): Promise<boolean> {
    return isOne(await this.scripts.run(IS_IN_SET, [this.keys.set(key)], [member]));
  }

  async members(key: string): Promise<readonly string[]> {
    return (await this.scripts.run(LIST_SET, [this.keys.set(key)], [])) as string[];
  }
}

/** Sorted sets whose scores are the times at which the members expire. Each script first drops the expired ones. */
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
    return isOne(await this.run(IS_IN_EXPIRING_SET, key, [member]));
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

/** Bits of Bloom filters. A rebuild fills a copy, which then takes their place. */
export class RedisCacheBits implements CacheBits {
  constructor(
    private readonly scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
  ) {}

  async add({ key, positions, ttl }: BitsRequest & { positions: readonly number[] }): Promise<void> {
    await this.scripts.run(ADD_BITS, [this.keys.bits(key), this.keys.rebuiltBits(key)], [ttl, ...positions]);
  }

  async has({ key, lists, ttl }: BitsRequest & { lists: readonly (readonly number[])[] }): Promise<boolean[] | null> {
    const args = [ttl, lists[0]?.length ?? 1, ...lists.flat()];
    const reply = (await this.scripts.run(HAS_BITS, [this.keys.bits(key)], args)) as RedisInteger[] | null;
    return reply && reply.map(isOne);
  }

  async beginRebuild({ key, token, lease, size }: RebuildRequest & { size: number }): Promise<boolean> {
    return isOne(await this.scripts.run(BEGIN_REBUILD, this.rebuilt(key), [token, lease, size]));
  }

  async addToRebuild(request: RebuildRequest & { positions: readonly number[] }): Promise<boolean> {
    const { key, token, lease, positions } = request;
    return isOne(await this.scripts.run(ADD_TO_REBUILD, this.rebuilt(key), [token, lease, ...positions]));
  }

  async finishRebuild({ key, token, ttl }: BitsRequest & { token: string }): Promise<boolean> {
    const keys = [this.keys.bits(key), ...this.rebuilt(key)];
    return isOne(await this.scripts.run(FINISH_REBUILD, keys, [token, ttl]));
  }

  async dropRebuild({ key, token }: KeyRequest & { token: string }): Promise<void> {
    await this.scripts.run(DROP_REBUILD, this.rebuilt(key), [token]);
  }

  async clear(key: string): Promise<void> {
    await this.scripts.run(UNLINK, [this.keys.bits(key), ...this.rebuilt(key)], []);
  }

  private rebuilt(key: string): [bits: string, rebuilder: string] {
    return [this.keys.rebuiltBits(key), this.keys.rebuilder(key)];
  }
}
