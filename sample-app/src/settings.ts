import { LOCK_BACKENDS, type LockBackendName, type LockStore } from './lock-backend.js';

/** The settings from the environment. */
export interface Settings {
  readonly port: number;
  readonly redisUrl: string;
  readonly databaseUrl: string;
  /** How many connections to the database this process opens at most; 20 by default. */
  readonly databaseConnections?: number;
  /** Precedes every lock's key, so that several shops can share a Redis. */
  readonly lockPrefix: string | undefined;
  /** Where the locks are; the cache is always in Redis. Redis by default. */
  readonly lockStore?: LockStore;
  /** The lease of every lock in milliseconds; `LOCK_TTL` by default. */
  readonly lockTtl?: number;
  /** Milliseconds between two stock reports. */
  readonly reportInterval: number;
  /** Milliseconds after which the leader looks again for products to restock; `RESTOCK_INTERVAL` by default. */
  readonly restockInterval?: number;
  /** Where orders are paid. Without it, they are not. */
  readonly paymentUrl?: string;
  /** The primitives that the shop does without, to show what they are good for. */
  readonly without?: ReadonlySet<Primitive>;
}

/** What the shop builds on locks. */
export const PRIMITIVES = [
  'once',
  'rate-limit',
  'semaphore',
  'read-write-lock',
  'scheduled-job',
  'leader-election',
] as const;

export type Primitive = (typeof PRIMITIVES)[number];

/**
 * The primitives keep their state in the Redis of the shop, wherever its locks are: most need Redis, and the others
 * stay beside them.
 */
export const PRIMITIVE_BACKEND = 'redis';

export const SETTINGS = Symbol('SETTINGS');
export const DATABASE_CONNECTIONS = 20;
export const RESTOCK_INTERVAL = 10_000;

/**
 * The lease of a lock in the shop, in milliseconds. A process that dies while it holds the lock of a product stops the
 * sale of that product until the lease has ended. It is therefore a few seconds, and less than the 5 s for which an
 * order waits. It must not be much shorter: a pause of the process (garbage collection, a busy machine) that exceeds
 * the lease costs the holder its lock. The duration of an order does not matter, because the lease is renewed while the
 * holder lives.
 */
export const LOCK_TTL = 3_000;

/** The longest delay of a timer in Node.js; a longer one fires after a millisecond. */
const LONGEST_TIMER = 2 ** 31 - 1;
const HIGHEST_PORT = 65_535;

/** @throws Error with the variable, its value and the remedy */
export function settingsFromEnvironment(env: NodeJS.ProcessEnv = process.env): Settings {
  return {
    port: whole(env, 'PORT', 3_000, 0, HIGHEST_PORT),
    redisUrl: required(env, 'REDIS_URL', 'redis://localhost:6379'),
    databaseUrl: required(env, 'DATABASE_URL', 'postgres://postgres@localhost:5432/postgres'),
    databaseConnections: whole(env, 'DATABASE_CONNECTIONS', DATABASE_CONNECTIONS, 1, 10_000),
    lockPrefix: prefix(env),
    ...lockStore(env),
    lockTtl: whole(env, 'LOCK_TTL', LOCK_TTL, 100, LONGEST_TIMER),
    reportInterval: whole(env, 'REPORT_INTERVAL', 60_000, 100, LONGEST_TIMER),
    restockInterval: whole(env, 'RESTOCK_INTERVAL', RESTOCK_INTERVAL, 10, LONGEST_TIMER),
    ...(env['PAYMENT_URL'] && { paymentUrl: env['PAYMENT_URL'] }),
    without: without(env),
  };
}

function required(env: NodeJS.ProcessEnv, name: string, example: string): string {
  const value = env[name];
  if (value) return value;
  throw new Error(`${name} is not set; for example ${name}=${example} (npm run demo starts its own servers)`);
}

function lockStore(env: NodeJS.ProcessEnv): { lockStore?: LockStore } {
  const name = env['LOCK_BACKEND'];
  if (name === undefined || name === 'redis') return {};
  if (!LOCK_BACKENDS.includes(name as LockBackendName)) {
    throw new Error(`LOCK_BACKEND is "${name}": give one of ${LOCK_BACKENDS.join(', ')}`);
  }
  return {
    lockStore: { name: name as LockBackendName, url: required(env, 'LOCK_BACKEND_URL', 'http://localhost:2379') },
  };
}

function without(env: NodeJS.ProcessEnv): ReadonlySet<Primitive> {
  const names = (env['WITHOUT'] ?? '').split(',').filter((name) => name !== '');
  const unknown = names.find((name) => !PRIMITIVES.includes(name as Primitive));
  if (unknown === undefined) return new Set(names as Primitive[]);
  throw new Error(`WITHOUT is "${env['WITHOUT']}": give some of ${PRIMITIVES.join(', ')}, with commas`);
}

function prefix(env: NodeJS.ProcessEnv): string | undefined {
  const value = env['LOCK_PREFIX'];
  if (value === undefined || (value !== '' && !/[{}]/.test(value))) return value;
  throw new Error(`LOCK_PREFIX is "${value}": give a name without braces, such as shop, or do not set it`);
}

function whole(env: NodeJS.ProcessEnv, name: string, fallback: number, least: number, most: number): number {
  const value = env[name] ?? String(fallback);
  if (/^\d+$/.test(value) && Number(value) >= least && Number(value) <= most) return Number(value);
  throw new Error(`${name} is "${value}": give a whole number from ${least} to ${most}`);
}
