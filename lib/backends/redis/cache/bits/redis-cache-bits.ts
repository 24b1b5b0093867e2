import type { BitsRequest, CacheBits, KeyRequest, RebuildRequest } from '../../../../contracts/cache-store.js';
import type { RedisInteger } from '../../scripting/redis-replies.js';
import type { ScriptRunner } from '../../scripting/script-runner.js';
import type { RedisCacheKeys } from '../redis-cache-keys.js';
import { ADD_BITS } from './add-bits.lua.js';
import { ADD_TO_REBUILD } from './add-to-rebuild.lua.js';
import { BEGIN_REBUILD } from './begin-rebuild.lua.js';
import { DROP_REBUILD } from './drop-rebuild.lua.js';
import { FINISH_REBUILD } from './finish-rebuild.lua.js';
import { HAS_BITS } from './has-bits.lua.js';

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
    await this.scripts.command((client) => client.unlink([this.keys.bits(key), ...this.rebuilt(key)]));
  }

  private rebuilt(key: string): [bits: string, rebuilder: string] {
    return [this.keys.rebuiltBits(key), this.keys.rebuilder(key)];
  }
}

function isOne(reply: unknown): boolean {
  return Number(reply) === 1;
}
