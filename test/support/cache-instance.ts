import 'reflect-metadata';
import type { INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis, type RedisOptions } from 'ioredis';
import { type CacheOptions, CacheService, RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import type { CacheEngine } from '../../lib/cache/cache-engine.js';
import { CacheRuntime } from '../../lib/cache/cache-runtime.js';
import { eventually } from './eventually.js';
import { RecordingLogger } from './recording-logger.js';
import { patient } from './lock-app.js';

export interface CacheInstance extends AsyncDisposable {
  readonly app: INestApplicationContext;
  readonly cache: CacheService;
  /** The parts behind `cache`, to see what the application has heard of. */
  readonly engine: CacheEngine;
  readonly logger: RecordingLogger;
  close(): Promise<void>;
}

class Root {}

/** One application with a cache; messages of the others arrive by now, unless `heard` is false. */
export async function openCache(
  options: RedisLockModuleOptions,
  { heard = true }: { heard?: boolean } = {},
): Promise<CacheInstance> {
  const logger = new RecordingLogger();
  const module = { module: Root, imports: [RedisLockModule.forRoot(patient(options))] };
  const app = await NestFactory.createApplicationContext(module, { logger, abortOnError: false });
  const cache = app.get(CacheService);
  const runtime = app.get(CacheRuntime);
  const close = () => app.close();
  if (heard) await eventually(() => runtime.engine().busConnected, { every: 2 });
  return {
    app,
    cache,
    get engine() {
      return runtime.engine();
    },
    logger,
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** `count` applications on the Redis server at a port of this machine. */
export async function openCaches(count: number, port: number, cache: CacheOptions = {}): Promise<CacheInstance[]> {
  const one = () => openCache({ redis: { host: '127.0.0.1', port }, cache });
  return Promise.all(Array.from({ length: count }, one));
}

export async function closeCaches(instances: readonly CacheInstance[]): Promise<void> {
  await Promise.all(instances.map((instance) => instance.close()));
}

export interface ClientWithBus extends Redis {
  /** Resolves when all messages have arrived that were sent before. */
  heard(): Promise<void>;
}

/**
 * A client whose messages take another way: that of a proxy, which may hold them up. It is to be disconnected by its
 * user.
 */
export function clientWithBusThrough(options: RedisOptions, busPort: number): ClientWithBus {
  const client: Redis = new Redis({ ...options, replyMapping: 'legacy' });
  client.on('error', () => {});
  const buses: Redis[] = [];
  const duplicate = (override?: RedisOptions) => {
    const bus = new Redis({ ...options, ...override, port: busPort, replyMapping: 'legacy' });
    buses.push(bus);
    return bus;
  };
  // The answer to a PING follows the messages on its connection.
  const pinged = async () => {
    const live = buses.filter(({ status }) => status === 'ready');
    const answers = await Promise.allSettled(live.map((bus) => bus.ping()));
    return answers.length > 0 && answers.every(({ status }) => status === 'fulfilled');
  };
  const heard = () => eventually(pinged, { every: 2 }).then(() => {});
  return Object.assign(client, { duplicate, heard });
}
