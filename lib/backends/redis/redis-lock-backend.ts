import calculateSlot from 'cluster-key-slot';
import { LockKeyError } from '../../lock/lock-errors.js';
import type {
  AcquireAnswer,
  AcquireRequest,
  LockBackend,
  LockBackendCapabilities,
  LockState,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
} from '../lock-backend.js';
import { createRedisClient, isRedisClient, runScript, type RedisClient, type RedisConnection } from './redis-client.js';
import { fenceKey, lockKey } from './redis-keys.js';
import { ACQUIRE } from './scripts/acquire.lua.js';
import { INSPECT } from './scripts/inspect.lua.js';
import { RELEASE } from './scripts/release.lua.js';
import { RENEW } from './scripts/renew.lua.js';

/** A fence outlives every lease that it has fenced, so that tokens rise also without a look at the clock. */
const FENCE_EXPIRY = 24 * 60 * 60 * 1_000;

/**
 * Locks on one Redis (or Valkey) primary, or on a Redis Cluster: a lock is the string `lock:{name}` that
 * `SET key ticket NX PX ttl` would make, so that clients of other languages which follow the redis.io protocol exclude
 * ours and are excluded by them.
 *
 * A client that is passed in is used and never closed. Options or a URL make a client of our own, which is closed with
 * the module.
 */
export function redis(connection: RedisConnection): LockBackend {
  return new RedisLockBackend(connection);
}

class RedisLockBackend implements LockBackend {
  readonly name = 'redis';
  readonly capabilities: LockBackendCapabilities = {
    lease: 'ttl',
    fencing: 'strict',
    push: false,
    severalKeys: true,
    serverQueue: false,
  };
  private readonly client: RedisClient;
  private readonly ownsClient: boolean;
  /** Grows whenever a connection ends: ioredis then resends what was not answered. */
  private disconnects = 0;
  private readonly countDisconnect = () => {
    this.disconnects += 1;
  };

  constructor(connection: RedisConnection) {
    this.ownsClient = !isRedisClient(connection);
    this.client = isRedisClient(connection) ? connection : createRedisClient(connection);
    for (const event of DISCONNECT_EVENTS) this.client.on(event, this.countDisconnect);
    // ioredis prints an error that nobody listens to; a command that fails because of it rejects, which is where we log.
    if (this.ownsClient) this.client.on('error', () => {});
  }

  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const locks = this.lockKeys(request);
    const keys = locks.flatMap((lock) => [lock, fenceKey(lock)]);
    const fenceExpiry = Math.max(FENCE_EXPIRY, 2 * request.ttl);
    const answer = await runScript(this.client, ACQUIRE, keys, [request.ticket, request.ttl, fenceExpiry]);
    const [granted, tokenOrIndex, owner, pttl] = answer as [RedisInteger, RedisInteger, string, RedisInteger];
    if (Number(granted) === 1) return { granted: true, fencingToken: Number(tokenOrIndex) };
    const name = request.names[Number(tokenOrIndex) - 1] as string;
    return { granted: false, name, owner, remaining: leaseOf(pttl) };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    // A script of a Cluster may touch one slot only.
    if (this.client.isCluster) return requests.flatMap((request) => this.renewInOneScript([request]));
    return this.renewInOneScript(requests);
  }

  async release(request: TicketRequest): Promise<ReleaseAnswer> {
    const disconnects = this.disconnects;
    const answer = Number(await runScript(this.client, RELEASE, this.lockKeys(request), [request.ticket]));
    const status = answer === 1 ? 'released' : answer === 0 ? 'gone' : 'taken';
    return { status, resent: this.disconnects !== disconnects };
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    const lock = lockKey(request);
    const [owner, ttl, unissued] = (await runScript(this.client, INSPECT, [lock, fenceKey(lock)], [])) as [
      string?,
      RedisInteger?,
      string?,
    ];
    if (owner === undefined) return null;
    return { owner, ttl: leaseOf(ttl), fencingToken: unissued ? Number(unissued) - 1 : null, waiting: 0 };
  }

  async forceRelease(request: NameRequest): Promise<string | null> {
    return this.client.getdel(lockKey(request));
  }

  async ping(): Promise<void> {
    await this.client.ping();
  }

  async close(): Promise<void> {
    for (const event of DISCONNECT_EVENTS) this.client.off(event, this.countDisconnect);
    if (this.ownsClient) this.client.disconnect();
  }

  private renewInOneScript(requests: readonly RenewRequest[]): Promise<RenewAnswer>[] {
    const keys = requests.flatMap((request) => this.lockKeys(request));
    const args = requests.flatMap(({ ticket, ttl, names }) => [ticket, ttl, names.length]);
    const answers = runScript(this.client, RENEW, keys, args) as Promise<RedisInteger[]>;
    return requests.map(async (_, index): Promise<RenewAnswer> => {
      const remaining = Number((await answers)[index]);
      return remaining < 0 ? { status: 'not-owner' } : { status: 'renewed', remaining };
    });
  }

  private lockKeys({ prefix, names }: TicketRequest): string[] {
    const keys = names.map((name) => lockKey({ prefix, name }));
    if (keys.length > 1 && this.client.isCluster) requireOneSlot(keys, names);
    return keys;
  }
}

/** A client of the user's may have ioredis' `stringNumbers` on. */
type RedisInteger = number | string;

const DISCONNECT_EVENTS = ['close', '-node', 'node error'] as const;

function leaseOf(pttl: RedisInteger | undefined): number {
  const remaining = Number(pttl);
  return remaining === -1 ? Infinity : Math.max(0, remaining);
}

function requireOneSlot(keys: readonly string[], names: readonly string[]): void {
  if (new Set(keys.map((key) => calculateSlot(key))).size === 1) return;
  const [first = '', second = ''] = names;
  throw new LockKeyError(
    `Locks ${names.map((name) => `"${name}"`).join(', ')} lie in different slots of the Redis Cluster and cannot be ` +
      `taken in one step; begin their names with one tag in braces, for example "{shop}${first}" and "{shop}${second}"`,
    names,
  );
}
