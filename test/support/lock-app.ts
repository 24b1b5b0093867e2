import 'reflect-metadata';
import type { INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { LockService, RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { RecordingLogger } from './recording-logger.js';

export interface LockApp extends AsyncDisposable {
  readonly app: INestApplicationContext;
  readonly locks: LockService;
  readonly logger: RecordingLogger;
  close(): Promise<void>;
}

/** Of applications whose calls are not about outages: a busy machine answers late. */
export const PATIENT = { commandTimeout: 10_000 } as const;

class Root {}

/** An application of nothing but the lock module. */
export async function startLockApp(options: RedisLockModuleOptions): Promise<LockApp> {
  const logger = new RecordingLogger();
  const module = { module: Root, imports: [RedisLockModule.forRoot(options)] };
  const app = await NestFactory.createApplicationContext(module, { logger, abortOnError: false });
  const close = () => app.close();
  return { app, locks: app.get(LockService), logger, close, [Symbol.asyncDispose]: close };
}
