/** What the environment says. */
export interface Settings {
  readonly port: number;
  readonly redisUrl: string;
  readonly databaseUrl: string;
  /** Put before every lock's key, so that several shops can share a Redis. */
  readonly lockPrefix: string | undefined;
  readonly reportInterval: number;
}

export const SETTINGS = Symbol('SETTINGS');

export function settingsFromEnvironment(env: NodeJS.ProcessEnv = process.env): Settings {
  return {
    port: Number(env['PORT'] ?? 3_000),
    redisUrl: required(env, 'REDIS_URL', 'redis://localhost:6379'),
    databaseUrl: required(env, 'DATABASE_URL', 'postgres://postgres@localhost:5432/postgres'),
    lockPrefix: env['LOCK_PREFIX'],
    reportInterval: Number(env['REPORT_INTERVAL'] ?? 60_000),
  };
}

function required(env: NodeJS.ProcessEnv, name: string, example: string): string {
  const value = env[name];
  if (value) return value;
  throw new Error(`${name} is not set; for example ${name}=${example} (npm run demo starts its own servers)`);
}
