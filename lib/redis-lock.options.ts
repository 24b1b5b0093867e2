import { fenceTtlOf } from './backends/redis/locks/queue.lua.js';
import { cacheSettings, type CacheOptions, type CacheSettings } from './cache/options/cache-options.js';
import type { LockBackend } from './contracts/lock-backend.js';
import { unknownBackend } from './lock/line/lock-backends.js';
import { defaultApplication, defaultLabel } from './lock/line/process-label.js';
import { resolveLockOptions, type LockOptions, type ResolvedLockOptions } from './lock/options/lock-options.js';
import { instance, prefixText, timer, trueOrFalse, type Check, type Duration } from './options/checks.js';
import { lockOption } from './options/option-checks.js';
import { OptionTable, settingOf } from './options/option-table.js';
import type { RedisConnection } from './options/redis-connection.js';

/** The options of `RedisLockModule.forRoot`. Unknown options are refused. */
export interface RedisLockModuleOptions {
  /**
   * An ioredis client or Cluster of the application, or a connected client of node-redis 5 or 6, which the module uses
   * and never closes; or ioredis options or a `redis://` URL, from which it makes a client that it closes with the
   * application. Either this or `backend`.
   */
  redis?: RedisConnection;
  /** The backend that keeps the locks, instead of `redis`. */
  backend?: LockBackend;
  /** Further backends, chosen for a lock with `{ backend: 'name' }`. */
  backends?: Record<string, LockBackend>;
  /** Precedes every key: 'shop' gives `shop:lock:{...}`. Without braces. @default none */
  prefix?: string;
  /**
   * Names the application in the names that the library makes up, of `idempotencyKey`, `RateLimitGuard` and
   * `throttlerStorage`: applications that share a store neither share answers nor limits. The same in each of its
   * processes.
   * @default the name in the package.json next to its main file, or of the working directory
   */
  application?: string;
  /** The defaults of the lock options, without `mode: 'read'`. */
  defaults?: LockOptions;
  /** How long one command may take, from when it is sent, even on a client that retries for ever. @default '1s' */
  commandTimeout?: Duration;
  /** Names this process as a holder in `inspect`; stored once for each process. @default host name and process id */
  label?: string;
  /**
   * How long Redis keeps the counter of the fencing tokens of a name after its last grant: about 124 bytes for each
   * name. Tokens rise even without it. With `backend`, give it to `redis(connection, { fenceTtl })`.
   * @default '10m'
   */
  fenceTtl?: Duration;
  /** How long holders get to finish when the application shuts down. @default '5s' */
  shutdownGrace?: Duration;
  /**
   * Whether the application refuses to start without its backends. Otherwise it logs a warning, and locks throw
   * `LockBackendError` until the backends are available.
   * @default false
   */
  failFast?: boolean;
  /**
   * The options of the cache; `false` for none. Without `redis` here or in these options, the cache needs a backend
   * that offers a store, as `memory()` does.
   */
  cache?: CacheOptions | false;
}

/** For `forRootAsync({ useClass })` and `useExisting`. */
export interface RedisLockOptionsFactory {
  /** Called once, when the module is built. */
  createRedisLockOptions(): RedisLockModuleOptions | Promise<RedisLockModuleOptions>;
}

/** `RedisLockModuleOptions` checked, complete, and in ms. */
export interface ResolvedModuleOptions {
  readonly redis: RedisConnection | undefined;
  readonly backend: LockBackend | undefined;
  readonly backends: Readonly<Record<string, LockBackend>>;
  readonly prefix: string | undefined;
  readonly application: string | undefined;
  readonly defaults: ResolvedLockOptions;
  readonly commandTimeout: number;
  readonly label: string;
  readonly fenceTtl: number | undefined;
  readonly shutdownGrace: number;
  readonly failFast: boolean;
  readonly cache: CacheSettings | undefined;
  /** Set by `withoutServer` alone: nobody else uses the backends. */
  readonly alone?: boolean;
}

const setting = settingOf<ResolvedModuleOptions>();
const lockBackend: Check<LockBackend> = (value, option, checks) => {
  if (typeof value === 'object' && value !== null && 'acquire' in value && !('open' in value)) {
    throw checks.conflict(
      `Option "${option}" is a backend of an earlier form, whose requests name the prefix; give it a method open(module) ` +
        'that returns an object with its calls: see docs/guide/writing-a-backend.md',
    );
  }
  return instance(isLockBackend, 'a LockBackend such as memory() or redis(...)')(value, option, checks);
};

const MODULE_OPTIONS = new OptionTable<RedisLockModuleOptions, ResolvedModuleOptions>(
  lockOption,
  'module option',
  '',
  {
    redis: undefined,
    backend: undefined,
    backends: {},
    prefix: undefined,
    application: defaultApplication(),
    defaults: resolveLockOptions({}),
    commandTimeout: 1_000,
    label: defaultLabel(),
    fenceTtl: undefined,
    shutdownGrace: 5_000,
    failFast: false,
    cache: cacheSettings({}),
  },
  {
    // The backend checks it, because only the backend knows what its client library takes.
    redis: (settings, value) => {
      settings.redis = value as RedisConnection;
    },
    backend: setting('backend', lockBackend),
    backends: setting('backends', (value, option, checks) => {
      const given = checks.object(option, value, 'an object of backends by their names');
      return Object.fromEntries(
        Object.entries(given).map(([name, each]) => [name, lockBackend(each, `${option}.${name}`, checks)]),
      );
    }),
    prefix: setting('prefix', prefixText),
    application: setting('application', instance(isText, 'a string of one character or more')),
    defaults: setting('defaults', (value, option, checks) =>
      resolveLockOptions(checks.object(option, value, 'an object of lock options')),
    ),
    commandTimeout: setting('commandTimeout', timer(1)),
    label: setting('label', instance(isText, 'a string of one character or more')),
    fenceTtl: setting('fenceTtl', fenceTtlOf),
    shutdownGrace: setting('shutdownGrace', timer(0)),
    failFast: setting('failFast', trueOrFalse),
    cache: setting('cache', (value) => (value === false ? undefined : cacheSettings(value as CacheOptions))),
  },
);

/**
 * Checks the options and fills in the defaults.
 *
 * @throws LockConfigError or CacheConfigError with the option, the value and the remedy
 */
export function resolveModuleOptions(options: RedisLockModuleOptions): ResolvedModuleOptions {
  lockOption.object('options', options, 'an object of module options');
  const settings = MODULE_OPTIONS.settings(options);
  const { redis, backend } = settings;
  if ((redis === undefined) === (backend === undefined)) {
    const given = redis === undefined ? 'neither is' : 'both are';
    throw lockOption.conflict(`Options "redis" and "backend": ${given} set; give exactly one`);
  }
  if (settings.fenceTtl !== undefined && redis === undefined) {
    const remedy = 'it to the backend: redis(connection, { fenceTtl })';
    throw lockOption.refused('fenceTtl', options.fenceTtl, remedy);
  }
  if (settings.defaults.mode === 'read') {
    throw lockOption.refused('defaults.mode', 'read', 'it with each call that reads: others write, and must be alone');
  }
  requireDefaultBackend(settings);
  return settings;
}

function requireDefaultBackend({ defaults, backends }: ResolvedModuleOptions): void {
  const known = Object.keys(backends);
  if (defaults.backend === undefined || known.includes(defaults.backend)) return;
  throw unknownBackend('defaults.backend', defaults.backend, known);
}

function isLockBackend(value: unknown): value is LockBackend {
  return typeof value === 'object' && value !== null && 'open' in value && typeof value.open === 'function';
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}
