import { AsyncLocalStorage } from 'node:async_hooks';
import { connectIoredis, connectNodeRedis, LEASE, RETRY, WAIT } from './connecting.mjs';

const RELEASE = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`;

/** The floor: what the wire costs, without waiting, fencing or renewal. */
export async function raw(settings) {
  const client = await connectIoredis(settings);
  client.defineCommand('releaseLock', { numberOfKeys: 1, lua: RELEASE });
  let last = 0;
  return async (key, body) => {
    const ticket = `${process.pid}:${++last}`;
    if ((await client.set(key, ticket, 'PX', LEASE, 'NX')) !== 'OK') throw new Error(`${key} is busy`);
    try {
      return await body();
    } finally {
      await client.releaseLock(key, ticket);
    }
  };
}

/** The limit of a hot key: promises in one process that wait for each other, without Redis. */
export async function mutex() {
  const tails = new Map();
  return (key, body) => {
    const result = (tails.get(key) ?? Promise.resolve()).then(body);
    tails.set(
      key,
      result.catch(() => {}),
    );
    return result;
  };
}

export async function redlock(settings) {
  const client = await connectIoredis(settings);
  const { default: Redlock } = settings.modules.require('redlock');
  const locks = new Redlock([client], { retryCount: -1, retryDelay: RETRY.delay, retryJitter: RETRY.jitter });
  return async (key, body) => {
    const lock = await locks.acquire([key], LEASE);
    try {
      return await body();
    } finally {
      await lock.release();
    }
  };
}

export async function sesamecareRedlock(settings) {
  const client = await connectIoredis(settings);
  const { Redlock } = await settings.modules.import('@sesamecare-oss/redlock');
  const locks = new Redlock([client], { retryCount: -1, retryDelay: RETRY.delay, retryJitter: RETRY.jitter });
  return async (key, body) => {
    const lock = await locks.acquire([key], LEASE);
    try {
      return await body();
    } finally {
      await lock.release();
    }
  };
}

export async function redlockUniversal(settings) {
  const client = await connectIoredis(settings);
  const { createLock, IoredisAdapter } = await settings.modules.import('redlock-universal');
  const adapter = new IoredisAdapter(client);
  const retries = { retryAttempts: WAIT, retryDelay: RETRY.delay };
  return async (key, body) => {
    const lock = createLock({ adapter, key, ttl: LEASE, ...retries });
    const handle = await lock.acquire();
    try {
      return await body();
    } finally {
      await lock.release(handle);
    }
  };
}

export async function redisSemaphore(settings) {
  const client = await connectIoredis(settings);
  const { Mutex } = settings.modules.require('redis-semaphore');
  return async (key, body) => {
    const lock = new Mutex(client, key, { lockTimeout: LEASE, acquireTimeout: WAIT });
    await lock.acquire();
    try {
      return await body();
    } finally {
      await lock.release();
    }
  };
}

export async function redisKit(settings) {
  const client = await connectNodeRedis(settings);
  const { Redlock } = settings.modules.require('@redis-kit/lock');
  const retries = { retryDelayMs: RETRY.delay, retryJitterMs: RETRY.jitter, maxRetryAttempts: WAIT };
  const locks = new Redlock([client], retries);
  return async (key, body) => {
    const lock = await locks.acquire(key, LEASE);
    try {
      return await body();
    } finally {
      await lock.release();
    }
  };
}

export async function simpleRedisMutex(settings) {
  const client = await connectNodeRedis(settings);
  const { lock } = await settings.modules.import('simple-redis-mutex');
  return async (key, body) => {
    const release = await lock(client, key, { timeout: LEASE, failAfter: WAIT });
    try {
      return await body();
    } finally {
      await release();
    }
  };
}

const silent = { debug() {}, log() {}, warn() {}, error() {} };

export async function murlock({ port, modules }) {
  modules.require('reflect-metadata');
  const { MurLockService } = modules.require('murlock');
  const { AsyncStorageService } = modules.require('murlock/dist/als/als.service.js');
  const { AsyncStorageManager } = modules.require('murlock/dist/als/als-manager.js');
  const storage = new AsyncStorageService(new AsyncStorageManager(new AsyncLocalStorage()));
  const redisOptions = { socket: { host: '127.0.0.1', port } };
  const settings = { redisOptions, wait: RETRY.delay, maxAttempts: WAIT, failFastOnRedisError: false };
  const service = new MurLockService({ ...settings, logLevel: 'none' }, storage);
  service.logger = silent; // its log level 'none' logs everything
  await service.onModuleInit();
  return (key, body) => service.runWithLock(key, LEASE, RETRY.delay, body);
}

/** Loaded by its own processes alone: those of the others have neither Nest nor this library. */
export async function ours(settings) {
  const { connectOurs } = await import('../worker/lock-service.mjs');
  return connectOurs(settings);
}
