import type {
  CacheListener,
  CacheStore,
  CacheTracker,
  CommitRequest,
  DeleteMatchingRequest,
  InvalidateRequest,
  KeyRequest,
  KeyState,
  LeaseAnswer,
  LeaseRequest,
  LoadRequest,
  SetRequest,
  TagState,
  TagVersion,
} from '../../../contracts/cache-store.js';
import { ownStore, type Pending, type StoreContext } from '../../../contracts/store.js';
import { CacheConfigError } from '../../../errors/cache-errors.js';
import type { RedisConnection } from '../../../options/redis-connection.js';
import { ReadBatch } from '../connection/read-batch.js';
import { isCluster, type RedisClient } from '../connection/redis-client.js';
import { RedisLink } from '../connection/redis-link.js';
import { PTTL, integerOf, isOne, leaseOf, type RedisInteger } from '../connection/redis-script.js';
import { ScriptBatch } from '../connection/script-batch.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { checkServers } from '../connection/server-check.js';
import { VersionsInUse } from '../connection/versions-in-use.js';
import { COMMIT, INVALIDATE, LEASE, READ_OR_LEASE, RELEASE_LEASE, RENEW_BARRIER, RENEW_LEASE } from './loads.lua.js';
import { RedisCacheBus, RedisCacheTracking } from './redis-cache-bus.js';
import { RedisCacheKeys, rightsOfCache } from './redis-cache-keys.js';
import { RedisCacheTags } from './redis-cache-tags.js';
import { RedisCacheWrites } from './redis-cache-writes.js';
import { RedisCacheBits, RedisCacheSets, RedisExpiringSets } from './redis-collections.js';
import { deleteMatching, RedisScheduledDeletions } from './redis-deletions.js';
import { EXPIRE, INCREMENT, INSPECT_VALUE, TAKE } from './values.lua.js';

/** Opens a store on a client that the application gives, or on a connection of its own. */
export function openRedisCacheStore(connection: RedisConnection, prefix: string | undefined): CacheStore {
  const link = new RedisLink(connection, { name: 'cache.redis', ConfigError: CacheConfigError }, { holds: false });
  return new RedisCacheStore(link, prefix, () => link.close());
}

/**
 * Cached values on one Redis (or Valkey) primary, or on a Redis Cluster. A value is a plain string, so that a hit costs
 * one GET; steps that must be atomic are scripts.
 */
export class RedisCacheStore implements CacheStore {
  readonly name = 'redis';
  readonly caveat: string | undefined;
  readonly sets: RedisCacheSets;
  readonly expiringSets: RedisExpiringSets;
  readonly bits: RedisCacheBits;
  readonly deletions: RedisScheduledDeletions;
  /** Absent on a Cluster, where it would need a connection to each master. */
  readonly track?: (tracker: CacheTracker) => void;
  private readonly scripts: ScriptRunner;
  private readonly keys: RedisCacheKeys;
  private readonly bus: RedisCacheBus;
  private readonly trackings: RedisCacheTracking[] = [];
  private readonly reads: ReadBatch;
  private readonly leases: ScriptBatch;
  private readonly readsOrLeases: ScriptBatch;
  private readonly commits: ScriptBatch;
  private readonly invalidations: ScriptBatch;
  private readonly writing: RedisCacheWrites;
  private readonly increments: ScriptBatch;
  private readonly tags: RedisCacheTags;
  private readonly versions: VersionsInUse;
  /** Once it has started: tells its module no more. */
  private forget: (() => void) | undefined;

  constructor(
    private readonly link: RedisLink,
    prefix: string | undefined,
    private readonly onClose: () => void = () => {},
  ) {
    ownStore(this);
    const { scripts } = link;
    const { report } = link.listeners;
    this.scripts = scripts;
    this.keys = new RedisCacheKeys(prefix, scripts.client.options.keyPrefix);
    this.caveat = caveatOf(scripts.client);
    this.bus = new RedisCacheBus(scripts, this.keys.channel, report);
    if (!scripts.client.isCluster) {
      this.track = (tracker) => this.trackings.push(new RedisCacheTracking(scripts, this.keys, tracker, report));
    }
    this.reads = new ReadBatch(scripts);
    this.leases = new ScriptBatch(scripts, LEASE, 'columns');
    this.readsOrLeases = new ScriptBatch(scripts, READ_OR_LEASE, 'columns');
    this.commits = new ScriptBatch(scripts, COMMIT, 'columns');
    this.invalidations = new ScriptBatch(scripts, INVALIDATE);
    this.writing = new RedisCacheWrites(scripts, this.keys, this.reads);
    this.increments = new ScriptBatch(scripts, INCREMENT);
    this.sets = new RedisCacheSets(scripts, this.keys);
    this.expiringSets = new RedisExpiringSets(scripts, this.keys);
    this.bits = new RedisCacheBits(scripts, this.keys);
    this.deletions = new RedisScheduledDeletions(scripts, this.keys);
    this.tags = new RedisCacheTags(scripts, this.keys, this.reads);
    this.versions = new VersionsInUse(scripts, report);
  }

  listen(listener: CacheListener): void {
    this.bus.listen(listener);
  }

  read(key: string): Pending<Buffer | null> {
    return this.reads.read(this.keys.value(key));
  }

  get resends(): number {
    return this.scripts.disconnects;
  }

  lease({ key, token, lease, refresh, seen = '', waits }: LeaseRequest): Pending<LeaseAnswer> {
    const [value, own, barrier] = this.keys.valueLeaseAndBarrier(key);
    const args = [(waits ? '1' : '0') + token, lease, refresh ? 'refresh' : '', seen];
    return this.leases.run(undefined, [value, barrier, own], args, leaseAnswer, this.lastTagInvalidationOr(barrier));
  }

  readOrLease({ key, token, lease, waits }: Omit<LeaseRequest, 'refresh' | 'seen'>): Pending<Buffer | LeaseAnswer> {
    const [value, own, barrier] = this.keys.valueLeaseAndBarrier(key);
    const args = [(waits ? '1' : '0') + token, lease];
    const last = this.lastTagInvalidationOr(barrier);
    return this.readsOrLeases.run(undefined, [value, barrier, own], args, valueOrLeaseAnswer, last);
  }

  commit({ key, token, data, ttl }: CommitRequest): Pending<boolean> {
    const [value, lease] = this.keys.valueLeaseAndBarrier(key);
    return this.commits.run(this.keys.channel, [lease, value], [`0${token}`, ttl, key, data], isOne);
  }

  async renew({ key, token, lease }: LoadRequest & { lease: number }): Promise<boolean> {
    return isOne(await this.scripts.run(RENEW_LEASE, [this.keys.lease(key)], [token, lease]));
  }

  async release({ key, token, outdated }: LoadRequest & { outdated?: boolean }): Promise<void> {
    const [value, lease] = this.keys.valueLeaseAndBarrier(key);
    if (outdated) this.reads.sendThoseOf(value);
    await this.scripts.run(RELEASE_LEASE, [lease, value], [this.keys.channel, token, key, outdated ? 1 : '']);
  }

  invalidate({ key, barrier, lift, staleSince }: InvalidateRequest): Pending<boolean> {
    const keys = this.keys.valueLeaseAndBarrier(key);
    this.reads.sendThoseOf(keys[0]);
    const args = [key, barrier?.token ?? '', barrier?.ttl ?? 0, lift ?? '', staleSince?.toString(36) ?? ''];
    return this.invalidations.run(this.keys.channel, keys, args, isOne);
  }

  async take(key: string): Promise<Buffer | null> {
    const [value, lease] = this.keys.valueLeaseAndBarrier(key);
    this.reads.sendThoseOf(value);
    return (await this.scripts.runForBytes(TAKE, [value, lease], [this.keys.channel, key])) as Buffer | null;
  }

  async renewBarrier({ key, token, ttl }: KeyRequest & { token: string; ttl: number }): Promise<boolean> {
    return isOne(await this.scripts.run(RENEW_BARRIER, [this.keys.barrier(key)], [token, ttl]));
  }

  set(request: SetRequest): Pending<boolean | 'late'> {
    return this.writing.set(request);
  }

  increment({ key, by, ttl }: KeyRequest & { by: number; ttl: number }): Pending<number> {
    const [value, lease] = this.keys.valueLeaseAndBarrier(key);
    this.reads.sendThoseOf(value);
    return this.increments.run(this.keys.channel, [value, lease], [by, ttl === Infinity ? '' : ttl, key], Number);
  }

  async expire({ key, ttl }: KeyRequest & { ttl: number }): Promise<boolean> {
    const value = this.keys.value(key);
    this.reads.sendThoseOf(value);
    const now = Date.now();
    const times = [now, Math.ceil(now + ttl)].map((time) => time.toString(36));
    return isOne(await this.scripts.run(EXPIRE, [value], [this.keys.channel, ttl, key, ...times]));
  }

  async ttl(key: string): Promise<number | null> {
    const left = integerOf(await this.scripts.run(PTTL, [this.keys.value(key)], []));
    if (left === -2) return null;
    return left === -1 ? Infinity : left;
  }

  async inspect(key: string): Promise<KeyState> {
    const keys = this.keys.valueLeaseAndBarrier(key);
    const reply = await this.scripts.runForBytes(INSPECT_VALUE, keys, [LONGEST_HEAD]);
    const [ttl, bytes, head, lease, writes] = reply as Inspected;
    return {
      value: integerOf(ttl) === -2 ? null : { head, bytes: integerOf(bytes), ttl: leaseOf(ttl) },
      lease: integerOf(lease) === -2 ? null : leaseOf(lease),
      barrier: integerOf(writes) > 0,
    };
  }

  beginTags(tags: readonly string[], ttl: number): Pending<readonly TagVersion[]> {
    return this.tags.begin(tags, ttl);
  }

  readTags(tags: readonly string[]): Pending<readonly TagState[]> {
    return this.tags.read(tags);
  }

  lastTagInvalidation(): Pending<number | null> {
    return this.tags.lastInvalidation();
  }

  invalidateTag(tag: string, softly = false): Pending<void> {
    return this.tags.invalidate(tag, softly);
  }

  async deleteMatching(request: DeleteMatchingRequest): Promise<number> {
    const deleted = await deleteMatching(this.scripts, this.keys, request);
    // Other processes cannot evaluate a glob of Redis, so for a pattern every key counts as invalidated.
    await this.bus.publish('prefix' in request.match ? `p${request.match.prefix}` : 'p');
    return deleted;
  }

  async start(request: StoreContext): Promise<void> {
    this.forget = this.link.listeners.add(request);
    this.link.start(request);
    const rights = rightsOfCache(request.prefix, this.scripts.client.options.keyPrefix);
    const note = () => this.versions.note(this.keys.versions, 'cached values');
    await checkServers(this.scripts, rights, request.report, note);
  }

  diagnose(error?: unknown): Error {
    return this.link.diagnose(error);
  }

  ping(): Promise<unknown> {
    return this.scripts.command((client) => client.ping());
  }

  private lastTagInvalidationOr(barrier: string): string {
    return this.scripts.takesOneSlot ? barrier : this.keys.lastTagInvalidation;
  }

  close(): void {
    this.versions.close();
    this.bus.close();
    for (const tracking of this.trackings) tracking.close();
    this.forget?.();
    this.onClose();
  }
}

function caveatOf(client: RedisClient): string | undefined {
  const { scaleReads = 'master' } = isCluster(client) ? client.options : {};
  if (scaleReads === 'master') return undefined;
  return (
    `The cache reads from replicas (option "scaleReads" of the Cluster is ${String(scaleReads)}): it may serve what was ` +
    "invalidated, also where consistency is 'strong'; give it a Cluster of its own that reads from masters, as cache.redis"
  );
}

/** Reads the answer of LEASE. */
function leaseAnswer(answer: unknown): LeaseAnswer {
  const reply = Number(answer);
  if (reply > 0) return { status: 'leased', at: reply };
  if (reply === 0) return { status: 'hit' };
  if (reply === -1) return { status: 'barrier' };
  return { status: 'busy', remaining: -2 - reply };
}

function valueOrLeaseAnswer(answer: unknown): Buffer | LeaseAnswer {
  return Buffer.isBuffer(answer) ? answer : leaseAnswer(answer);
}

/** The most bytes of an envelope, which may name hundreds of tags. */
const LONGEST_HEAD = 65_536;

/** What the script INSPECT_VALUE returns. */
type Inspected = [ttl: RedisInteger, bytes: RedisInteger, head: Buffer, lease: RedisInteger, writes: RedisInteger];
