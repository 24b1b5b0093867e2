import type { TagState, TagVersion } from '../../../contracts/cache-store.js';
import type { ReadBatch } from '../connection/read-batch.js';
import { batchOf, redisScript } from '../connection/redis-script.js';
import { ScriptBatch } from '../connection/script-batch.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';

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
    const begin = (tag: string) => this.begins.run(undefined, [this.keys.tag(tag)], [ttl], tagVersion);
    return Promise.all(tags.length === 1 ? tags.map(begin) : this.begins.runTogether(() => tags.map(begin)));
  }

  read(tags: readonly string[]): Promise<readonly TagState[]> {
    const states = tags.map((tag) => this.reads.read(this.keys.tag(tag)));
    return Promise.all(states).then((all) => all.map(tagState));
  }

  async lastInvalidation(): Promise<number | null> {
    const at = await this.reads.read(this.keys.lastTagInvalidation);
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

/** How long (ms) the version of an invalidated tag is kept at least: longer than a loader may run. */
export const TAG_MEMORY = 24 * 60 * 60 * 1_000;
/**
 * The same for a tag of no value. It covers the time in which a load reads the versions of its tags and the time of the
 * last invalidation of any tag, which is kept for longer.
 */
const UNUSED_TAG_MEMORY = 10 * 60 * 1_000;

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

/**
 * Returns the version of a tag, and gives it one if it has none. The version is the time in µs of the last
 * invalidation; of a tag that was never invalidated, the time when it began, as a negative number.
 *
 * KEYS, for each call: tag.
 * ARGV, for each call: how long in ms to keep the version at least.
 * Returns for each call the version as INVALIDATE_TAG writes it.
 */
const BEGIN_TAG = redisScript(`
local now = redis.call('TIME')
local function begin(k, a)
  local version = redis.call('GET', KEYS[k])
  if version then
    if redis.call('PTTL', KEYS[k]) < tonumber(ARGV[a]) then redis.call('PEXPIRE', KEYS[k], ARGV[a]) end
    return tonumber(string.match(version, '^[^;]+'))
  end
  version = -(now[1] * 1000000 + now[2])
  redis.call('SET', KEYS[k], string.format('%.0f', version), 'PX', ARGV[a])
  return version
end
${batchOf('begin', { keys: 1, args: 1, shared: 0 })}`);

/**
 * Gives a tag a version greater than all earlier ones, so that values stored with another version no longer count, or
 * are stale; and records the same version as the last invalidation of any tag, whose versions rise, too.
 *
 * After a soft expiry a tag is `version;least`: values stored with a version from `least` on are stale.
 *
 * KEYS: tag, last invalidation of any tag; or one of them, where they lie in two slots: only then a clock that steps
 * back gives the tag a version below that of another one that was invalidated before.
 * ARGV: channel, the tag, how long in ms to keep the version at least, 1 to expire the first key softly (else empty),
 * and how long to keep the version of the first key when it has none yet.
 */
const INVALIDATE_TAG = redisScript(`
local now = redis.call('TIME')
local next, lasts = now[1] * 1000000 + now[2], {}
for i, key in ipairs(KEYS) do
  lasts[i] = redis.call('GET', key)
  if lasts[i] then next = math.max(next, math.abs(tonumber(string.match(lasts[i], '^[^;]+'))) + 1) end
end
for i, key in ipairs(KEYS) do
  local last, version = lasts[i], string.format('%.0f', next)
  local ttl = math.max(redis.call('PTTL', key), tonumber(i == 1 and not last and ARGV[5] or ARGV[3]))
  if i == 1 and ARGV[4] ~= '' and last then
    version = version .. ';' .. (string.match(last, ';(.+)') or string.gsub(last, '^-', ''))
  end
  redis.call('SET', key, version, 'PX', string.format('%.0f', ttl))
end
redis.call('PUBLISH', ARGV[1], 't' .. ARGV[2])
return 1
`);
