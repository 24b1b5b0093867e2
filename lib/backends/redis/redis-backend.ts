import calculateSlot from 'cluster-key-slot';
import type { CacheStore, CacheStoreProvider } from '../../contracts/cache-store.js';
import type {
  AcquireAnswer,
  AcquireRequest,
  AcquireSeveralRequest,
  KeepRequest,
  LabelRequest,
  ListedNames,
  ListRequest,
  LockBackend,
  LockQueue,
  LockState,
  LockTraits,
  MintRequest,
  NameRequest,
  Pending,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
  TokenRange,
} from '../../contracts/lock-backend.js';
import type { PrimitiveStoreProvider, PrimitiveStores } from '../../contracts/primitive-stores.js';
import type { StartRequest } from '../../contracts/store.js';
import { messageOf } from '../../errors/limited-log.js';
import { LockConfigError, LockKeyError } from '../../errors/lock-errors.js';
import type { Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import type { RedisConnection } from '../../options/redis-connection.js';
import { BatchedCall } from '../batch.js';
import { RedisCacheStore } from './cache/redis-cache-store.js';
import { RedisLink } from './connection/redis-link.js';
import { integerOf, leaseOf, type RedisInteger, tokenRange } from './connection/redis-script.js';
import { ScriptBatch } from './connection/script-batch.js';
import type { ScriptRunner } from './connection/script-runner.js';
import { checkServers, evictionHazards, type Rights } from './connection/server-check.js';
import { VersionsInUse } from './connection/versions-in-use.js';
import { fencingScripts, type FencingScripts } from './locks/fencing-scripts.js';
import { listLocks, LockInspection } from './locks/lock-inspection.js';
import { FENCE_TTL, fenceTtlOf } from './locks/queue.lua.js';
import { keysOf, labelKey, lockKey, publishArgument, rightsOfLocks, versionsKey } from './locks/redis-lock-keys.js';
import { prepareRenewals, RedisLockQueue, releaseStatus } from './locks/redis-lock-queue.js';
import { KEEP, RENEW, RENEW_ONE } from './locks/release.lua.js';
import { Replicas, ReplicatedQueue } from './locks/replicas.js';
import { primitiveChannels, rightsOfSemaphores } from './primitives/primitive-key.js';
import { RedisIdempotencyStore } from './primitives/redis-idempotency-store.js';
import { RedisLatchStore } from './primitives/redis-latch-store.js';
import { RedisPrimitiveChannel } from './primitives/redis-primitive-channel.js';
import { RedisRateLimitStore } from './primitives/redis-rate-limit-store.js';
import { RedisRunRecords } from './primitives/redis-run-records.js';
import { RedisSemaphoreStore } from './primitives/redis-semaphore-store.js';

/**
 * Locks on one Redis (or Valkey) primary, or on a Redis Cluster. A lock is the string `lock:{name}`, as `SET key ticket
 * NX PX ttl` makes it, so that clients in other languages that follow the redis.io protocol and this library exclude
 * each other. Such a client sees a queue of ours as one long hold.
 *
 * The library uses a client that is passed in and never closes it. From options or a URL it makes a client of its own
 * and closes it with the module. It opens a second connection, for messages, at the first wait for a busy lock.
 */
export function redis(connection: RedisConnection, options: RedisBackendOptions = {}): LockBackend {
  const given = lockOption.object('options', options, 'an object of options of redis()');
  return new RedisLockBackend(connection, OPTIONS.settings(given));
}

/** The options of `redis()` beside the connection. */
export interface RedisBackendOptions {
  /**
   * How long Redis keeps the counter of the fencing tokens of a name after its last grant: about 124 bytes for each
   * name. Tokens rise even without it, because they start from the time of Redis; the counter bridges the difference of
   * two servers' clocks when a name moves to another server. At least 1 s.
   * @default '10m'
   */
  fenceTtl?: Duration;
  /**
   * How many replicas must confirm each grant, within a third of `commandTimeout` from the `WAIT` on. A grant that they
   * do not confirm is released, and the call rejects with `LockReplicationError`. This makes it less likely that a
   * failover forgets a lock, and does not exclude it. Each grant takes a `WAIT` longer, which goes over a connection of
   * its own. Refused on a Cluster; a Sentinel client of node-redis cannot do it.
   * @default 0
   */
  minReplicas?: number;
}

/** A command is renamed or disabled, or the user may not run it. */
const COMMAND_REFUSED = /unknown (redis )?command|can't run this command|NOPERM/i;

/** Composes the parts of `connection/`, `locks/`, `cache/` and `primitives/`; of a lock, it decides what goes where. */
class RedisLockBackend implements LockBackend, CacheStoreProvider, PrimitiveStoreProvider {
  readonly name = 'redis';
  readonly traits: LockTraits;
  readonly queue: LockQueue;
  private readonly scripts: ScriptRunner;
  private readonly releases: ScriptBatch;
  private readonly link: RedisLink;
  private readonly fencing: FencingScripts;
  private readonly tickets: RedisLockQueue;
  private readonly inspection: LockInspection;
  private readonly versions: VersionsInUse;
  /** `undefined` where no replica has to confirm. */
  private readonly replicas: Replicas | undefined;
  /** What the primitives need, until the server has refused some of it. */
  private primitives: Rights | undefined;

  private readonly fenceTtl: number;

  constructor(connection: RedisConnection, { fenceTtl = FENCE_TTL, minReplicas }: RedisBackendSettings) {
    this.fenceTtl = fenceTtl;
    this.fencing = fencingScripts(fenceTtl);
    this.link = new RedisLink(connection, { name: 'redis', ConfigError: LockConfigError });
    this.scripts = this.link.scripts;
    // node-redis writes in the next turn of the event loop.
    const writesAtOnce = this.link.client.library === undefined;
    this.traits = { lease: 'ttl', fencing: 'strict', leastLease: 1, writesAtOnce };
    this.versions = new VersionsInUse(this.scripts, this.link.reporters.report);
    this.releases = new ScriptBatch(this.scripts, this.fencing.release);
    this.tickets = new RedisLockQueue(this.link, this.fencing);
    this.inspection = new LockInspection(this.scripts);
    this.replicas = minReplicas > 0 ? new Replicas(this.link, minReplicas) : undefined;
    this.queue = this.replicas
      ? new ReplicatedQueue(this.tickets, this.replicas, (request) => this.release(request))
      : this.tickets;
  }

  acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    return this.take(request, [request.name], keysOf(request));
  }

  async acquireSeveral(request: AcquireSeveralRequest): Promise<AcquireAnswer> {
    const { prefix, names } = request;
    const { isCluster, options } = this.scripts.client;
    if (isCluster) requireOneSlot(options.keyPrefix, prefix, names);
    const keys = names.flatMap((name) => keysOf({ prefix, name }));
    return this.take(request, names, keys);
  }

  renew(requests: readonly RenewRequest[]): readonly Pending<RenewAnswer>[] {
    const { scripts } = this;
    if (scripts.takesOneSlot) return requests.map((request) => this.renewOne(request));
    const keys: string[] = [];
    const args: (string | number)[] = [];
    const calls: BatchedCall<RenewAnswer>[] = [];
    for (const request of requests) {
      const [lock, , queue] = keysOf(request);
      keys.push(lock, queue);
      args.push(request.ticket, request.ttl);
      calls.push(new BatchedCall(renewAnswer));
    }
    scripts.send(
      RENEW,
      keys,
      args,
      (reply) => {
        const fits = Array.isArray(reply) && reply.length === 2 * calls.length;
        const all = fits ? (reply as unknown[]) : [];
        for (const [index, call] of calls.entries()) call.settle(all.slice(2 * index, 2 * index + 2));
      },
      (error) => {
        const refused = scripts.refusesKeys(error);
        for (const [index, call] of calls.entries()) {
          if (refused) void this.renewAlone(requests[index] as RenewRequest, call);
          else call.fail(error);
        }
      },
    );
    return calls;
  }

  release(request: TicketRequest): Pending<ReleaseAnswer> {
    const { scripts } = this;
    const { disconnects } = scripts;
    return this.releases.run(publishArgument(request, this.link.client), keysOf(request), [request.ticket], (reply) => {
      return { status: releaseStatus(reply), resent: scripts.disconnects !== disconnects };
    });
  }

  async mint(request: MintRequest): Promise<TokenRange | null> {
    const args = [publishArgument(request, this.link.client), request.ticket, request.leastToken];
    const reply = (await this.scripts.run(this.fencing.mint, keysOf(request), args)) as RedisInteger[];
    return reply.length === 0 ? null : tokenRange(reply);
  }

  async keep(request: KeepRequest): Promise<ReleaseAnswer> {
    const { scripts } = this;
    const { disconnects } = scripts;
    const args = [publishArgument(request, this.link.client), request.ticket, request.rest];
    const reply = await scripts.run(KEEP, keysOf(request), args);
    return { status: releaseStatus(reply), resent: scripts.disconnects !== disconnects };
  }

  async downgrade(request: RenewRequest): Promise<void> {
    const args = [publishArgument(request, this.link.client), request.ticket, request.ttl];
    await this.scripts.run(this.fencing.downgrade, keysOf(request), args);
  }

  inspect(request: NameRequest): Promise<LockState | null> {
    return this.inspection.inspect(request);
  }

  async label(request: LabelRequest): Promise<void> {
    const key = labelKey(request, request.process);
    const { label, ttl } = request;
    if (ttl === 0) await this.scripts.command((client) => client.del(key));
    else await this.scripts.command((client) => client.set(key, label, 'PX', ttl));
  }

  async forceRelease(request: NameRequest): Promise<string | readonly string[] | null> {
    const args = [publishArgument(request, this.link.client)];
    return this.scripts.run(this.fencing.forceRelease, keysOf(request), args) as Promise<string | string[] | null>;
  }

  list(request: ListRequest): Promise<ListedNames> {
    return listLocks(this.scripts, request);
  }

  whenConnected(listener: () => void): () => void {
    return this.scripts.whenConnected(listener);
  }

  openCacheStore(prefix: string | undefined): CacheStore {
    return new RedisCacheStore(this.link, prefix);
  }

  /** On the connection of the locks. */
  openPrimitiveStores(prefix: string | undefined): PrimitiveStores {
    const { link } = this;
    this.primitives ??= rightsOfSemaphores(prefix, this.scripts.client.options.keyPrefix);
    const channel = new RedisPrimitiveChannel(link, primitiveChannels(prefix));
    // Where replicas must confirm a grant, it takes more than one script.
    const fenceTtl = this.replicas ? undefined : this.fenceTtl;
    return {
      runs: new RedisRunRecords(link, prefix, fenceTtl),
      semaphores: new RedisSemaphoreStore(link, prefix, channel),
      latches: new RedisLatchStore(link, prefix, channel),
      results: new RedisIdempotencyStore(link, prefix, fenceTtl),
      rateLimits: new RedisRateLimitStore(link.scripts, prefix),
      close: async () => channel.close(),
    };
  }

  async start(request: StartRequest): Promise<void> {
    this.link.start(request);
    this.replicas?.allow(request.commandTimeout);
    const rights = rightsOfLocks(request.prefix, this.scripts.client.options.keyPrefix, this.replicas !== undefined);
    const note = () => this.versions.note(versionsKey(request), 'locks');
    await checkServers(this.scripts, rights, request.report, note);
    prepareRenewals(this.scripts);
  }

  hazards(): Promise<readonly string[]> {
    return evictionHazards(this.scripts);
  }

  diagnose(error?: unknown): Error {
    if (this.primitives && COMMAND_REFUSED.test(messageOf(error))) void this.nameRefused(this.primitives);
    return this.link.diagnose(error);
  }

  /** The error of a script does not say which command the server refused. */
  private async nameRefused(rights: Rights): Promise<void> {
    this.primitives = undefined;
    const { report } = this.link.reporters;
    await checkServers(this.scripts, rights, report).catch((error: unknown) => {
      report({ level: 'warn', message: messageOf(error) });
    });
  }

  async ping(): Promise<void> {
    await this.scripts.command((client) => client.ping());
  }

  async close(): Promise<void> {
    this.versions.close();
    this.tickets.close();
    this.replicas?.close();
    this.link.close();
  }

  /** Takes all of the names, whose keys these are, or none. */
  private async take(
    request: Omit<AcquireSeveralRequest, 'names'>,
    names: readonly string[],
    keys: readonly string[],
  ): Promise<AcquireAnswer> {
    const { ticket, ttl, leastToken = 0, mode } = request;
    const args = [publishArgument(request, this.link.client), ticket, ttl, leastToken];
    const script = mode === 'read' ? this.fencing.readAll : this.fencing.acquireAll;
    const answer = await this.scripts.run(script, keys, args);
    const [granted, tokenOrIndex, owner, pttl] = answer as [RedisInteger, RedisInteger, string, RedisInteger];
    if (Number(granted) === 1) {
      const tokens = tokenRange([tokenOrIndex, 1]);
      await this.replicas?.confirm(request, names);
      return { status: 'granted', tokens, remaining: ttl, waiting: undefined };
    }
    const name = names[Number(tokenOrIndex) - 1] as string;
    return { status: 'busy', name, owner, remaining: leaseOf(pttl) };
  }

  /**
   * Renews one name in a script of its own: during a migration, the keys of several locks may lie at two nodes. The
   * answer lacks the number of waiters.
   */
  private async renewOne(request: RenewRequest): Promise<RenewAnswer> {
    const reply = await this.scripts.run(RENEW_ONE, [lockKey(request)], [request.ticket, request.ttl]);
    const remaining = integerOf(reply);
    return remaining < 0 ? { status: 'not-owner' } : { status: 'renewed', remaining };
  }

  private async renewAlone(request: RenewRequest, call: BatchedCall<RenewAnswer>): Promise<void> {
    try {
      call.settle(await this.renewOne(request));
    } catch (error) {
      call.fail(error);
    }
  }
}

/** Of the script of renewals, or of a request of its own. */
function renewAnswer(reply: unknown): RenewAnswer {
  if (!Array.isArray(reply)) return reply as RenewAnswer;
  const [remaining = Number.NaN, waiting = Number.NaN] = (reply as RedisInteger[]).map(Number);
  if (!Number.isInteger(remaining) || !Number.isInteger(waiting))
    throw new Error('Redis answered no lease to a renewal');
  return remaining < 0 ? { status: 'not-owner' } : { status: 'renewed', remaining, waiting };
}

/** @throws LockKeyError for names that a Cluster cannot take in one step */
function requireOneSlot(keyPrefix = '', prefix: string | undefined, names: readonly string[]): void {
  if (new Set(names.map((name) => calculateSlot(keyPrefix + lockKey({ prefix, name })))).size === 1) return;
  const [first = '', second = ''] = names;
  throw new LockKeyError(
    `Locks ${names.map((name) => `"${name}"`).join(', ')} lie in different slots of the Redis Cluster and cannot be ` +
      `taken in one step; begin their names with one tag in braces, for example "{shop}${first}" and "{shop}${second}"`,
    names,
  );
}

interface RedisBackendSettings {
  /** `undefined`: the default. */
  readonly fenceTtl: number | undefined;
  readonly minReplicas: number;
}

const setting = settingOf<RedisBackendSettings>();

/** Refuses others with a `LockConfigError` that names the option, the value and the remedy. */
const OPTIONS = new OptionTable<RedisBackendOptions, RedisBackendSettings>(
  lockOption,
  'option of redis()',
  '',
  { fenceTtl: undefined, minReplicas: 0 },
  { fenceTtl: setting('fenceTtl', fenceTtlOf), minReplicas: setting('minReplicas', checkedMinReplicas) },
);

function checkedMinReplicas(value: unknown, option: string): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw lockOption.refused(option, value, 'a whole number from 0 on');
}
