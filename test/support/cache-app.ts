import 'reflect-metadata';
import type { INestApplication, ModuleMetadata } from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { CacheService, RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { patient } from './lock-app.js';
import { startRedisServer, type RedisServer } from './servers/redis-server.js';
import { RecordingLogger } from './recording-logger.js';

export interface CacheApp extends AsyncDisposable {
  readonly app: INestApplication;
  readonly cache: CacheService;
  readonly logger: RecordingLogger;
  close(): Promise<void>;
}

export interface CacheAppOptions {
  adapter?: AbstractHttpAdapter;
  /** Over those of a Redis server that the applications of one spec share, each with a prefix of its own. */
  module?: RedisLockModuleOptions;
}

let server: Promise<RedisServer> | undefined;
let applications = 0;

afterAll(async () => (await server)?.stop());

/** An application with locks and a cache, initialised. */
export async function cacheApp(
  metadata: ModuleMetadata = {},
  { adapter, module: options }: CacheAppOptions = {},
): Promise<CacheApp> {
  const logger = new RecordingLogger();
  const { url } = await (server ??= startRedisServer());
  const locks = RedisLockModule.forRoot(
    patient({ redis: url, prefix: `app-${++applications}`, cache: {}, ...options }),
  );
  const module = await Test.createTestingModule({
    ...metadata,
    imports: [locks, ...(metadata.imports ?? [])],
  }).compile();
  const app = adapter ? module.createNestApplication(adapter, { logger }) : module.createNestApplication({ logger });
  const close = () => app.close();
  try {
    await app.init();
  } catch (error) {
    await close();
    throw error;
  }
  return { app, cache: app.get(CacheService), logger, close, [Symbol.asyncDispose]: close };
}
