// A process with the build of the package in the folder that the command line names, on the Redis at the given port. It
// does what its parent asks, and records evidence of its holds in database 1.
import 'reflect-metadata';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';

const [, , folder, port] = process.argv;
const { CacheService, LockService, RedisLockModule } = await import(pathToFileURL(join(folder, 'dist/index.js')).href);
const connection = { host: '127.0.0.1', port: Number(port) };
const evidence = new Redis({ ...connection, db: 1 });

class Root {}
const imports = [RedisLockModule.forRoot({ redis: connection, cache: { l1: { ttl: '1h' }, commandTimeout: '10s' } })];
const app = await NestFactory.createApplicationContext({ module: Root, imports }, { logger: ['warn', 'error'] });
const locks = app.get(LockService);
const cache = app.get(CacheService);
const filter = cache.bloomFilter('ids', { capacity: 1_000, errorRate: 0.001 });
/** By name. */
const held = new Map();

/** Reads a counter and writes it back, alone and under a token above all before. */
async function count(name, { fencingToken }) {
  const [[, inside], [, last], [, counter]] = await evidence
    .multi([
      ['incr', `inside:${name}`],
      ['getset', `token:${name}`, fencingToken],
      ['get', `counter:${name}`],
    ])
    .exec();
  if (inside !== 1) await evidence.rpush('findings', `${folder}: not alone in ${name}`);
  if (Number(last) >= fencingToken) await evidence.rpush('findings', `${folder}: token ${fencingToken} after ${last}`);
  await evidence
    .multi([
      ['set', `counter:${name}`, Number(counter) + 1],
      ['decr', `inside:${name}`],
    ])
    .exec();
}

const TASKS = {
  /** Each of the callers takes the lock that number of times. */
  async contend({ name, callers, times, options }) {
    const call = async () => {
      for (let time = 0; time < times; time++) await locks.withLock(name, options, (lock) => count(name, lock));
    };
    await Promise.all(Array.from({ length: callers }, call));
  },
  async acquire({ name, options }) {
    const lock = await locks.acquire(name, options);
    held.set(String(name), lock);
    return { owner: lock.owner, token: lock.fencingToken };
  },
  async tryAcquire({ name, options }) {
    const lock = await locks.tryAcquire(name, options);
    if (lock) held.set(String(name), lock);
    return lock !== null;
  },
  async holds({ name }) {
    return held.get(String(name)).held;
  },
  async release({ name }) {
    await held.get(String(name)).release();
  },
  async forceRelease({ name }) {
    return locks.forceRelease(name);
  },
  async inspect({ name }) {
    return locks.inspect(name);
  },
  /** Calls a method of the cache. */
  async cache({ method, args }) {
    return cache[method](...args);
  },
  /** Reads through the cache, with a loader that takes `delay` ms. */
  async load({ key, value, delay = 0, options }) {
    let loaded = false;
    const load = async () => {
      loaded = true;
      await evidence.rpush(`loads:${key}`, folder);
      await sleep(delay);
      return value;
    };
    return { value: await cache.getOrSet(key, load, options), loaded };
  },
  /** Kills this process before the last deletion, of a value that was stored meanwhile. */
  async dieBeforeDeletion({ key, delay }) {
    await cache.doubleDelete(key, async () => {}, { delay });
    await cache.set(key, 'old', { ttl: '1h' });
    process.kill(process.pid, 'SIGKILL');
  },
  async rebuild({ ids }) {
    return filter.rebuild(() => ids);
  },
  async mayHave({ id }) {
    return filter.mayHave(id);
  },
};

async function perform({ id, task, given }) {
  try {
    process.send({ id, answer: await TASKS[task](given) });
  } catch (error) {
    process.send({ id, error: `${error.name}: ${error.message}` });
  }
}

process.on('message', (order) => void perform(order));
process.on('disconnect', () => process.exit());
process.send({ id: 0 });
