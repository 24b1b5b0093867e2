/** What the environment says. */
export interface Settings {
  readonly port: number;
  readonly redisUrl: string;
  readonly databaseUrl: string;
  /** Connections to the database that this process opens at most; 20 unless told. */
  readonly databaseConnections?: number;
  /** Put before every lock's key, so that several shops can share a Redis. */
  readonly lockPrefix: string | undefined;
  /** Milliseconds from one stock report to the next. */
  readonly reportInterval: number;
}

export const SETTINGS = Symbol('SETTINGS');
export const DATABASE_CONNECTIONS = 20;

export function settingsFromEnvironment(env: NodeJS.ProcessEnv = process.env): Settings {
  return {
    port: whole(env, 'PORT', 3_000, 0),
    redisUrl: required(env, 'REDIS_URL', 'redis://localhost:6379'),
    databaseUrl: required(env, 'DATABASE_URL', 'postgres://postgres@localhost:5432/postgres'),
    databaseConnections: whole(env, 'DATABASE_CONNECTIONS', DATABASE_CONNECTIONS, 1),
    lockPrefix: env['LOCK_PREFIX'],
    reportInterval: whole(env, 'REPORT_INTERVAL', 60_000, 100),
  };
}

function required(env: NodeJS.ProcessEnv, name: string, example: string): string {
  const value = env[name];
  if (value) return value;
  throw new Error(`${name} is not set; for example ${name}=${example} (npm run demo starts its own servers)`);
}

function whole(env: NodeJS.ProcessEnv, name: string, fallback: number, least: number): number {
  const value = env[name] ?? String(fallback);
  if (/^\d+$/.test(value) && Number(value) >= least) return Number(value);
  throw new Error(`${name} is "${value}": give a whole number, ${least} or more`);
}
