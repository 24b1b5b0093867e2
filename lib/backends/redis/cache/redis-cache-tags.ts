import type { TagState, TagVersion } from '../../../contracts/cache-store.js';
import type { Pending } from '../../../contracts/store.js';
import { ScriptBatch } from '../connection/script-batch.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import type { ReadBatch } from '../connection/read-batch.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';
import { BEGIN_TAG, INVALIDATE_TAG } from './loads.lua.js';

/** How long (ms) the version of an invalidated tag is kept at least: longer than a loader may run. */
const TAG_MEMORY = 24 * 60 * 60 * 1_000;
/**
 * The same for a tag of no value. It covers the time in which a load reads the versions of its tags and the time of the
 * last invalidation of any tag, which is kept for longer.
 */
const UNUSED_TAG_MEMORY = 10 * 60 * 1_000;

/** The versions of tags. */
export class RedisCacheTags {
  private readonly begins: ScriptBatch;

  constructor(
    private readonly scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
    private readonly reads: ReadBatch,
  ) {
    this.begins = new ScriptBatch(scripts, BEGIN_TAG);
  }

  begin(tags: readonly string[], ttl: number): Promise<readonly TagVersion[]> {
    const begun = tags.map((tag) => this.begins.run(undefined, [this.keys.tag(tag)], [ttl], tagVersion));
    return Promise.all(begun.map(promised));
  }

  read(tags: readonly string[]): Promise<readonly TagState[]> {
    const states = tags.map((tag) => this.reads.read(this.keys.tag(tag)));
    return Promise.all(states.map(promised)).then((all) => all.map(tagState));
  }

  async lastInvalidation(): Promise<number | null> {
    const at = await promised(this.reads.read(this.keys.lastTagInvalidation));
    return at === null ? null : Number(at);
  }

  async invalidate(tag: string, softly: boolean): Promise<void> {
    const args = [this.keys.channel, tag, TAG_MEMORY];
    const keys = [this.keys.tag(tag), this.keys.lastTagInvalidation] as const;
    this.reads.sendThoseOf(keys[0]);
    const soft = softly ? 1 : '';
    // In a Cluster the two keys lie in different slots.
    await (this.scripts.client.isCluster
      ? Promise.all([
          this.scripts.run(INVALIDATE_TAG, [keys[0]], [...args, soft, UNUSED_TAG_MEMORY]),
          this.scripts.run(INVALIDATE_TAG, [keys[1]], [...args, '', TAG_MEMORY]),
        ])
      : this.scripts.run(INVALIDATE_TAG, keys, [...args, soft, UNUSED_TAG_MEMORY]));
  }
}

/**
 * Attaches its callbacks in the same turn, as a `Pending` requires: `Promise.all` would call `then` one turn later and
 * miss a failure that has happened already.
 */
function promised<T>(call: Pending<T>): Promise<T> {
  return new Promise((resolve, reject) => void call.then(resolve, reject));
}

/** Reads the answer of the script BEGIN_TAG: negative when the tag has not been invalidated since it began. */
function tagVersion(reply: unknown): TagVersion {
  const version = Number(reply);
  return { version: Math.abs(version), begun: version < 0 };
}

/** Reads what the script INVALIDATE_TAG writes. */
function tagState(data: Buffer | null): TagState {
  if (data === null) return null;
  const version = Number(data);
  if (!Number.isNaN(version)) return Math.abs(version);
  const [last, least] = data.toString('latin1').split(';');
  return { version: Number(last), least: Number(least) };
}
