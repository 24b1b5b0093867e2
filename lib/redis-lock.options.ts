import type { LockBackend } from './contracts/lock-backend.js';
import type { RedisConnection } from './backends/redis/redis-client.js';
import { fenceTtlOf } from './backends/redis/locks/redis-lock-backend.js';
import type { CacheOptions } from './cache/options/cache-options.js';
import { cacheSettings, type CacheSettings } from './cache/options/cache-settings.js';
import { LockConfigError } from './errors/lock-errors.js';
import { defaultLabel } from './lock/backend/process-label.js';
import { duration, requireOption, resolveLockOptions, type LockOptions } from './lock/options/lock-options.js';
import type { Duration } from './options/duration.js';

/** What `RedisLockModule.forRoot` takes. Unknown options are refused. */
export interface RedisLockModuleOptions {
  /**
   * An ioredis client or Cluster of yours, which is used and never closed; or ioredis options or a `redis://` URL, from
   * which a client is made and closed with the application. Either this or `backend`.
   */
  redis?: RedisConnection;
  /** What keeps the locks, instead of `redis`. */
  backend?: LockBackend;
  /** Further backends, chosen for a lock with `{ backend: 'name' }`. */
  backends?: Record<string, LockBackend>;
  /** Put before every key: 'shop' gives `shop:lock:{...}`. Without braces. @default none */
  prefix?: string;
  /** What lock options are unless a call says otherwise. */
  defaults?: LockOptions;
  /** How long one command may take, from its send; holds also on a client that retries for ever. @default '1s' */
  commandTimeout?: Duration;
  /** Who holds a lock, for `inspect`: kept once for the process, beside the locks. @default host name and process id */
  label?: string;
  /**
   * How long Redis keeps the counter of the fencing tokens of a name after its last grant: about 124 bytes for each
   * name. Tokens rise also without it. With `backend`, give it to `redis(connection, { fenceTtl })`.
   * @default '10m'
   */
  fenceTtl?: Duration;
  /** How long holders get to finish when the application shuts down. @default '5s' */
  shutdownGrace?: Duration;
  /**
   * Whether the application refuses to start without its backends. If not, it warns once, and locks throw
   * `LockBackendError` until they are there.
   * @default false
   */
  failFast?: boolean;
  /**
   * The cache: on unless `false`. Without `redis` here and in these options, it needs a backend that keeps one, as
   * `memory()` does.
   */
  cache?: CacheOptions | false;
}

/** For `forRootAsync({ useClass })` and `useExisting`. */
export interface RedisLockOptionsFactory {
  /** Called once, when the module is built. */
  createRedisLockOptions(): RedisLockModuleOptions | Promise<RedisLockModuleOptions>;
}

export interface ResolvedModuleOptions {
  readonly redis: RedisConnection | undefined;
  readonly backend: LockBackend | undefined;
  readonly backends: Readonly<Record<string, LockBackend>>;
  readonly prefix: string | undefined;
  readonly defaults: LockOptions;
  readonly commandTimeout: number;
  readonly label: string;
  readonly fenceTtl: number | undefined;
  readonly shutdownGrace: number;
  readonly failFast: boolean;
  readonly cache: (CacheSettings & { readonly redis: RedisConnection | undefined }) | undefined;
}

const OPTION_NAMES = new Set<string>([
  'redis',
  'backend',
  'backends',
  'prefix',
  'defaults',
  'commandTimeout',
  'label',
  'fenceTtl',
  'shutdownGrace',
  'failFast',
  'cache',
] satisfies (keyof RedisLockModuleOptions)[]);

/** Checks the options and fills in the defaults. @throws LockConfigError naming the option, the value and the remedy */
export function resolveModuleOptions(options: RedisLockModuleOptions): ResolvedModuleOptions {
  requireOption(typeof options === 'object' && options !== null, 'options', options, 'an object of module options');
  for (const name of Object.keys(options)) {
    if (OPTION_NAMES.has(name)) continue;
    throw new LockConfigError(`Unknown module option "${name}"; give any of ${[...OPTION_NAMES].join(', ')}`);
  }
  const { redis, backend, backends = {}, prefix, defaults = {}, failFast = false } = options;
  const { label = defaultLabel() } = options;
  if ((redis === undefined) === (backend === undefined)) {
    const given = redis === undefined ? 'neither' : 'both';
    throw new LockConfigError(`Options "redis" and "backend": ${given} of them is set; give exactly one`);
  }
  if (backend) requireBackend('backend', backend);
  for (const [name, further] of Object.entries(backends)) requireBackend(`backends.${name}`, further);
  const validPrefix = prefix === undefined || (typeof prefix === 'string' && prefix !== '' && !/[{}]/.test(prefix));
  requireOption(validPrefix, 'prefix', prefix, 'a string without braces, which would change the Cluster slot');
  requireOption(typeof label === 'string' && label !== '', 'label', label, 'a string of one character or more');
  requireOption(typeof failFast === 'boolean', 'failFast', failFast, 'true or false');
  resolveLockOptions(defaults);
  return {
    redis,
    backend,
    backends,
    prefix,
    defaults,
    label,
    commandTimeout: duration('commandTimeout', options.commandTimeout ?? 1_000, 1),
    fenceTtl: resolveFenceTtl(options),
    shutdownGrace: duration('shutdownGrace', options.shutdownGrace ?? 5_000, 0),
    failFast,
    cache: options.cache === false ? undefined : resolveCache(options.cache ?? {}),
  };
}

function resolveFenceTtl({ fenceTtl, redis }: RedisLockModuleOptions): number | undefined {
  if (fenceTtl === undefined) return undefined;
  requireOption(redis !== undefined, 'fenceTtl', fenceTtl, 'it to the backend: redis(connection, { fenceTtl })');
  return fenceTtlOf(fenceTtl);
}

function resolveCache(options: CacheOptions): ResolvedModuleOptions['cache'] {
  return { ...cacheSettings(options), redis: options.redis };
}

function requireBackend(option: string, backend: unknown): void {
  const valid = typeof backend === 'object' && backend !== null && 'acquire' in backend;
  requireOption(valid, option, backend, 'a LockBackend such as memory() or redis(...)');
}
