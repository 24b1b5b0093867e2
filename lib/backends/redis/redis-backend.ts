import type { CacheStoreProvider } from '../../contracts/cache-store.js';
import type { LockBackend } from '../../contracts/lock-backend.js';
import type { PrimitiveStoreProvider } from '../../contracts/primitive-stores.js';
import { ownStore } from '../../contracts/store.js';
import { messageOf } from '../../errors/limited-log.js';
import { LockConfigError } from '../../errors/lock-errors.js';
import type { Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import type { RedisConnection } from '../../options/redis-connection.js';
import { RedisCacheStore } from './cache/redis-cache-store.js';
import { RedisLink } from './connection/redis-link.js';
import { checkServers, evictionHazards, type Rights } from './connection/server-check.js';
import { VersionsInUse } from './connection/versions-in-use.js';
import { fencingScripts } from './locks/fencing-scripts.js';
import { FENCE_TTL, fenceTtlOf } from './locks/queue.lua.js';
import { LockChannels } from './locks/redis-lock-channels.js';
import { redisLockStore } from './locks/redis-lock-store.js';
import { Replicas } from './locks/replicas.js';
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
  return redisOn(connection, OPTIONS.settings(given));
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

/** Composes the parts of `connection/`, `locks/`, `cache/` and `primitives/`. */
function redisOn(
  connection: RedisConnection,
  { fenceTtl = FENCE_TTL, minReplicas }: RedisBackendSettings,
): LockBackend & CacheStoreProvider & PrimitiveStoreProvider {
  const fencing = fencingScripts(fenceTtl);
  const link = new RedisLink(connection, { name: 'redis', ConfigError: LockConfigError });
  const { scripts, client } = link;
  const channels = new LockChannels(link);
  const versions = new VersionsInUse(scripts, link.listeners.report);
  const replicas = minReplicas > 0 ? new Replicas(link, minReplicas) : undefined;
  const locks = { link, fencing, channels, versions, replicas };
  /** What the primitives need, until the server has refused some of it. */
  let primitives: Rights | undefined;

  /** The error of a script does not say which command the server refused. */
  const nameRefused = async (rights: Rights): Promise<void> => {
    primitives = undefined;
    const { report } = link.listeners;
    await checkServers(scripts, rights, report).catch((error: unknown) => {
      report({ level: 'warn', message: messageOf(error) });
    });
  };

  return {
    name: 'redis',
    // node-redis writes in the next turn of the event loop.
    traits: { lease: 'ttl', fencing: 'strict', leastLease: 1, writesAtOnce: client.library === undefined },
    open: (module) => ownStore(redisLockStore(locks, module, link.listeners.add(module))),
    openCacheStore: (prefix) => new RedisCacheStore(link, prefix),

    /** On the connection of the locks. */
    openPrimitiveStores(prefix) {
      primitives ??= rightsOfSemaphores(prefix, client.options.keyPrefix);
      const channel = new RedisPrimitiveChannel(link, primitiveChannels(prefix));
      // Where replicas must confirm a grant, it takes more than one script.
      const ofLocks = replicas ? undefined : fenceTtl;
      return ownStore({
        runs: new RedisRunRecords(link, prefix, ofLocks),
        semaphores: new RedisSemaphoreStore(link, prefix, channel),
        latches: new RedisLatchStore(link, prefix, channel),
        results: new RedisIdempotencyStore(link, prefix, ofLocks),
        rateLimits: new RedisRateLimitStore(scripts, prefix),
        close: async () => channel.close(),
      });
    },

    hazards: () => evictionHazards(scripts),

    diagnose(error) {
      if (primitives && COMMAND_REFUSED.test(messageOf(error))) void nameRefused(primitives);
      return link.diagnose(error);
    },

    ping: async () => void (await scripts.command(() => client.ping())),

    async close() {
      versions.close();
      channels.close();
      replicas?.close();
      link.close();
    },
  };
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
