import calculateSlot from 'cluster-key-slot';
import { LockConfigError, LockKeyError } from '../../../errors/lock-errors.js';
import type { Duration } from '../../../options/duration.js';
import { lockOption } from '../../../options/option-checks.js';
import type { CacheStore } from '../../../contracts/cache-store.js';
import type { CacheStoreProvider } from '../../../contracts/cache-store-provider.js';
import type {
  AcquireAnswer,
  AcquireRequest,
  LabelRequest,
  LockBackend,
  KeepRequest,
  LockBackendCapabilities,
  LockState,
  NameRequest,
  Pending,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
} from '../../../contracts/lock-backend.js';
import type { StartRequest } from '../../../contracts/start-request.js';
import { RedisCacheStore } from '../cache/redis-cache-store.js';
import { RedisLink } from '../redis-link.js';
import type { RedisConnection } from '../../../options/redis-connection.js';
import { keysOf, labelKey, lockKey, publishArgument } from './redis-lock-keys.js';
import { RedisLockQueue } from './redis-lock-queue.js';
import { leaseOf, type RedisInteger } from '../scripting/redis-replies.js';
import { ScriptBatch } from '../scripting/script-batch.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import { rightsOfLocks } from './lock-rights.js';
import { checkServers } from '../start-up/server-check.js';
import { fencingScripts, type FencingScripts } from './fencing-scripts.js';
import { INSPECT } from './scripts/inspect.lua.js';
import { KEEP } from './scripts/keep.lua.js';
import { RENEW, RENEW_ONE } from './scripts/renew.lua.js';

/**
 * Locks on one Redis (or Valkey) primary, or on a Redis Cluster: a lock is the string `lock:{name}` that
 * `SET key ticket NX PX ttl` would make, so that clients of other languages which follow the redis.io protocol exclude
 * ours and are excluded by them. They see a queue of ours as one long hold.
 *
 * A client that is passed in is used and never closed. Options or a URL make a client of our own, which is closed with
 * the module. A second connection, for messages, is opened with the first wait for a busy lock.
 */
export function redis(connection: RedisConnection, { fenceTtl }: RedisBackendOptions = {}): LockBackend {
  return new RedisLockBackend(connection, fenceTtl === undefined ? undefined : fenceTtlOf(fenceTtl));
}

/** What `redis()` takes beside the connection. */
export interface RedisBackendOptions {
  /**
   * How long the counter of the fencing tokens of a name stays at Redis after its last grant: about 124 bytes for each
   * name. Tokens rise also without it, as they begin at the time of Redis; it bridges the difference of two servers'
   * clocks when a name is moved. At least 1 s.
   * @default '10m'
   */
  fenceTtl?: Duration;
}

/** @throws LockConfigError */
export function fenceTtlOf(fenceTtl: unknown): number {
  return lockOption.timerMilliseconds('fenceTtl', fenceTtl, 1_000);
}

const OPTION = { name: 'redis', ConfigError: LockConfigError };

class RedisLockBackend implements LockBackend, CacheStoreProvider {
  readonly name = 'redis';
  readonly capabilities: LockBackendCapabilities = {
    lease: 'ttl',
    fencing: 'strict',
    push: true,
    severalKeys: true,
    serverQueue: true,
  };
  readonly queue: RedisLockQueue;
  private readonly scripts: ScriptRunner;
  private readonly releases: ScriptBatch;
  private readonly link: RedisLink;
  private readonly fencing: FencingScripts;

  constructor(connection: RedisConnection, fenceTtl: number | undefined) {
    this.fencing = fencingScripts(fenceTtl);
    this.link = new RedisLink(connection, OPTION);
    this.scripts = this.link.scripts;
    this.releases = new ScriptBatch(this.scripts, this.fencing.release);
    this.queue = new RedisLockQueue(this.link, this.fencing);
  }

  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const { ticket, ttl, leastToken = 0 } = request;
    const args = [this.publishing(request), ticket, ttl, leastToken];
    const answer = await this.scripts.run(this.fencing.acquireAll, this.keysOf(request), args);
    const [granted, tokenOrIndex, owner, pttl] = answer as [RedisInteger, RedisInteger, string, RedisInteger];
    if (Number(granted) === 1) return { granted: true, fencingToken: Number(tokenOrIndex) };
    const name = request.names[Number(tokenOrIndex) - 1] as string;
    return { granted: false, name, owner, remaining: leaseOf(pttl) };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    if (this.scripts.client.isCluster) return requests.map((request) => this.renewEach(request));
    return this.renewInOneScript(requests);
  }

  release(request: TicketRequest): Pending<ReleaseAnswer> {
    const [name = '', ...others] = request.names;
    return others.length === 0 ? this.releaseOne(request, name) : this.releaseEach(request);
  }

  async keep(request: KeepRequest): Promise<ReleaseAnswer> {
    const { scripts } = this;
    const { disconnects } = scripts;
    const args = [this.publishing(request), request.ticket, request.rest];
    const reply = await scripts.run(KEEP, this.keysOf(request), args);
    return { status: releaseStatus(reply), resent: scripts.disconnects !== disconnects };
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    const [owner, ttl, unissued, waiting] = (await this.scripts.run(INSPECT, keysOf(request), [])) as [
      string?,
      RedisInteger?,
      string?,
      RedisInteger?,
    ];
    if (owner === undefined) return null;
    const fencingToken = unissued ? Number(unissued) - 1 : null;
    const label = await this.labelOf(request, owner);
    return { owner, ...(label !== null && { label }), ttl: leaseOf(ttl), fencingToken, waiting: Number(waiting) };
  }

  async label(request: LabelRequest): Promise<void> {
    const key = labelKey(request, request.process);
    const { label, ttl } = request;
    if (ttl === 0) await this.scripts.command((client) => client.del(key));
    else await this.scripts.command((client) => client.set(key, label, 'PX', ttl));
  }

  async forceRelease(request: NameRequest): Promise<string | null> {
    const args = [this.publishing(request)];
    return this.scripts.run(this.fencing.forceRelease, keysOf(request), args) as Promise<string | null>;
  }

  whenConnected(listener: () => void): () => void {
    return this.scripts.whenConnected(listener);
  }

  openCacheStore(prefix: string | undefined): CacheStore {
    return new RedisCacheStore(this.link, prefix);
  }

  async start(request: StartRequest): Promise<void> {
    this.link.start(request);
    const rights = rightsOfLocks(request.prefix, this.scripts.client.options.keyPrefix);
    await checkServers(this.scripts, rights, request.report);
  }

  diagnose(error?: unknown): Error {
    return this.link.diagnose(error);
  }

  async ping(): Promise<void> {
    await this.scripts.command((client) => client.ping());
  }

  async close(): Promise<void> {
    this.queue.close();
    this.link.close();
  }

  private async labelOf(request: NameRequest, owner: string): Promise<string | null> {
    const process = /^(.+):\d+$/.exec(owner)?.[1];
    return process === undefined ? null : this.scripts.command((client) => client.get(labelKey(request, process)));
  }

  private async releaseEach(request: TicketRequest): Promise<ReleaseAnswer> {
    const answers = await Promise.all(request.names.map((name) => this.releaseOne(request, name)));
    const worst = (['taken', 'gone'] as const).find((status) => answers.some((answer) => answer.status === status));
    return { status: worst ?? 'released', resent: answers.some(({ resent }) => resent) };
  }

  private releaseOne({ prefix, ticket }: TicketRequest, name: string): Pending<ReleaseAnswer> {
    const { scripts } = this;
    const { disconnects } = scripts;
    return this.releases.run(this.publishing({ prefix }), keysOf({ prefix, name }), [ticket], (reply) => {
      return { status: releaseStatus(reply), resent: scripts.disconnects !== disconnects };
    });
  }

  /** One by one: in a Cluster, the keys of several locks may be at two nodes for a while. How many wait is not told. */
  private async renewEach({ prefix, names, ticket, ttl }: RenewRequest): Promise<RenewAnswer> {
    const answers = await Promise.all(
      names.map((name) => this.scripts.run(RENEW_ONE, [lockKey({ prefix, name })], [ticket, ttl])),
    );
    const remaining = Math.min(...(answers as RedisInteger[]).map(Number));
    return remaining < 0 ? { status: 'not-owner' } : { status: 'renewed', remaining };
  }

  private renewInOneScript(requests: readonly RenewRequest[]): Promise<RenewAnswer>[] {
    const keys = requests.flatMap((request) => this.keysOf(request).filter((_, index) => index % 2 === 0));
    const args = requests.flatMap(({ ticket, ttl, names }) => [ticket, ttl, names.length]);
    const answers = this.scripts.run(RENEW, keys, args) as Promise<RedisInteger[]>;
    return requests.map(async (_, index): Promise<RenewAnswer> => {
      const [remaining, waiting] = (await answers).slice(2 * index).map(Number) as [number, number];
      return remaining < 0 ? { status: 'not-owner' } : { status: 'renewed', remaining, waiting };
    });
  }

  private publishing(request: Pick<NameRequest, 'prefix'>): string {
    return publishArgument(request, this.link.client);
  }

  private keysOf({ prefix, names }: TicketRequest): readonly string[] {
    if (names.length === 1) return keysOf({ prefix, name: names[0] as string });
    if (this.scripts.client.isCluster) requireOneSlot(this.scripts.client.options.keyPrefix, prefix, names);
    return names.flatMap((name) => keysOf({ prefix, name }));
  }
}

function releaseStatus(reply: unknown): ReleaseAnswer['status'] {
  const answer = Number(reply);
  return answer === 1 ? 'released' : answer === 0 ? 'gone' : 'taken';
}

function requireOneSlot(keyPrefix = '', prefix: string | undefined, names: readonly string[]): void {
  if (new Set(names.map((name) => calculateSlot(keyPrefix + lockKey({ prefix, name })))).size === 1) return;
  const [first = '', second = ''] = names;
  throw new LockKeyError(
    `Locks ${names.map((name) => `"${name}"`).join(', ')} lie in different slots of the Redis Cluster and cannot be ` +
      `taken in one step; begin their names with one tag in braces, for example "{shop}${first}" and "{shop}${second}"`,
    names,
  );
}
