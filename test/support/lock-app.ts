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

/** How long (ms) the applications of tests wait for an answer, unless they say it: a busy machine answers late. */
const COMMAND_TIMEOUT = 10_000;

/** The options with time limits that no busy machine exceeds, where a test states none. */
export function patient(options: RedisLockModuleOptions): RedisLockModuleOptions {
  const cache = options.cache && { commandTimeout: COMMAND_TIMEOUT, ...options.cache };
  return { commandTimeout: COMMAND_TIMEOUT, ...options, ...(cache && { cache }) };
}

class Root {}

/**
 * Starts applications that cannot reach their backend. Only the end of the tests waits for their ends, which take as
 * long as an answer may.
 */
export function leavingApps(): (options: RedisLockModuleOptions) => Promise<LockApp & Disposable> {
  const ends: Promise<void>[] = [];
  afterAll(() => Promise.all(ends));
  return async (options) => {
    const app = await startLockApp(options);
    return { ...app, [Symbol.dispose]: () => void ends.push(app.close()) };
  };
}

/** An application of nothing but the lock module. */
export async function startLockApp(options: RedisLockModuleOptions): Promise<LockApp> {
  const logger = new RecordingLogger();
  const module = { module: Root, imports: [RedisLockModule.forRoot(patient(options))] };
  const app = await NestFactory.createApplicationContext(module, { logger, abortOnError: false });
  const close = () => app.close();
  return { app, locks: app.get(LockService), logger, close, [Symbol.asyncDispose]: close };
}
