/** What the environment says. */
export interface Settings {
  readonly port: number;
  readonly redisUrl: string;
  readonly databaseUrl: string;
  /** Connections to the database that this process opens at most; 20 unless told. */
  readonly databaseConnections?: number;
  /** Put before every lock's key, so that several shops can share a Redis. */
  readonly lockPrefix: string | undefined;
  /** Milliseconds of lease of every lock; `LOCK_TTL` unless told. */
  readonly lockTtl?: number;
  /** Milliseconds from one stock report to the next. */
  readonly reportInterval: number;
}

export const SETTINGS = Symbol('SETTINGS');
export const DATABASE_CONNECTIONS = 20;

/**
 * Milliseconds of lease of a lock in the shop. A process that dies while it holds the lock of a product stops the sale
 * of that product until the lease has ended: so it is a few seconds, and less than the 5 s for which an order waits. It
 * must not be much less either: a pause of the process (garbage collection, a busy machine) that is longer than the
 * lease costs the holder its lock. How long an order takes does not matter, because the lease is renewed while the
 * holder lives.
 */
export const LOCK_TTL = 3_000;

/** What a timer of Node.js can wait for; one above it waits for a millisecond. */
const LONGEST_TIMER = 2 ** 31 - 1;
const HIGHEST_PORT = 65_535;

/** @throws Error that names the variable, its value and the remedy */
export function settingsFromEnvironment(env: NodeJS.ProcessEnv = process.env): Settings {
  return {
    port: whole(env, 'PORT', 3_000, 0, HIGHEST_PORT),
    redisUrl: required(env, 'REDIS_URL', 'redis://localhost:6379'),
    databaseUrl: required(env, 'DATABASE_URL', 'postgres://postgres@localhost:5432/postgres'),
    databaseConnections: whole(env, 'DATABASE_CONNECTIONS', DATABASE_CONNECTIONS, 1, 10_000),
    lockPrefix: prefix(env),
    lockTtl: whole(env, 'LOCK_TTL', LOCK_TTL, 100, LONGEST_TIMER),
    reportInterval: whole(env, 'REPORT_INTERVAL', 60_000, 100, LONGEST_TIMER),
  };
}

function required(env: NodeJS.ProcessEnv, name: string, example: string): string {
  const value = env[name];
  if (value) return value;
  throw new Error(`${name} is not set; for example ${name}=${example} (npm run demo starts its own servers)`);
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
