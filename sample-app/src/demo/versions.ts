import { createRequire } from 'node:module';
import { Redis } from 'ioredis';
import type { Environment } from './environment.js';

/** The versions of what the demo runs on, by name. */
export async function versionsOf({ redisUrl, database }: Environment): Promise<Record<string, string>> {
  const own = createRequire(import.meta.url)('nest-redis-lock/package.json') as { version: string };
  const { rows } = await database.query<{ server_version: string }>('SHOW server_version');
  return {
    'nest-redis-lock': own.version,
    'Node.js': process.versions.node,
    ...(await redisVersion(redisUrl)),
    PostgreSQL: rows[0]?.server_version ?? 'unknown',
  };
}

async function redisVersion(url: string): Promise<Record<string, string>> {
  const redis = new Redis(url, { lazyConnect: true });
  redis.on('error', () => {});
  try {
    const info = await redis.info('server');
    // Valkey also names the version of Redis that it is compatible with.
    const valkey = /^valkey_version:(\S+)/m.exec(info)?.[1];
    return valkey ? { Valkey: valkey } : { Redis: /^redis_version:(\S+)/m.exec(info)?.[1] ?? 'unknown' };
  } finally {
    redis.disconnect();
  }
}
