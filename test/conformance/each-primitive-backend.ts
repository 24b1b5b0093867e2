import { randomUUID } from 'node:crypto';
import { IdempotencyService, memory, redis, type RedisLockModuleOptions } from 'nest-redis-lock';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { replacingPrimitives } from '../support/primitives-with.js';
import { startRedisCluster } from '../support/servers/redis-cluster.js';
import { startRedisSentinel } from '../support/servers/redis-sentinel.js';
import { startRedisServer } from '../support/servers/redis-server.js';

/** A store of primitives for several applications. */
export interface PrimitiveWorld {
  /** Of the module of a further application. */
  options(): RedisLockModuleOptions;
  stop(): Promise<unknown>;
}

/** All stores that keep primitives, by their names. */
export const PRIMITIVE_WORLDS: Readonly<Record<string, () => Promise<PrimitiveWorld>>> = {
  redis: async () => {
    const server = await startRedisServer();
    return { options: () => ({ redis: server.url }), stop: () => server.stop() };
  },
  'Redis with Sentinel': async () => {
    const sentinel = await startRedisSentinel();
    return { options: () => ({ redis: sentinel.options }), stop: () => sentinel.stop() };
  },
  'a Redis Cluster': async () => {
    const cluster = await startRedisCluster();
    const clients: ReturnType<typeof cluster.client>[] = [];
    return {
      options: () => {
        const client = cluster.client();
        clients.push(client);
        return { redis: client };
      },
      stop: async () => {
        for (const client of clients) client.disconnect();
        await cluster.stop();
      },
    };
  },
  memory: async () => {
    const backend = memory();
    return { options: () => ({ backend }), stop: () => backend.close() };
  },
};

/** Two applications that share a store. */
export let apps: readonly [LockApp, LockApp];

/** Starts a further application on the store, with some methods of its primitive stores replaced. */
export let startWith: (replace: Parameters<typeof replacingPrimitives>[1]) => Promise<LockApp>;

/** Runs the cases on each store that keeps primitives. `subject` names the primitive. */
export function eachPrimitiveBackend(subject: string, cases: () => void): void {
  describe.each(Object.entries(PRIMITIVE_WORLDS))(`${subject} on %s`, (_, start) => {
    let world: PrimitiveWorld;
    beforeAll(async () => {
      world = await start();
      const open = () => startLockApp(world.options());
      apps = await Promise.all([open(), open()]);
      startWith = (replace) => {
        const { redis: connection, backend = redis(connection!) } = world.options();
        return startLockApp({ backend: replacingPrimitives(backend, replace) });
      };
    });
    afterAll(async () => {
      for (const app of apps) await app.close();
      await world.stop();
    });
    cases();
  });
}

export let one: LockApp;

export let two: LockApp;

/** Of the two applications, which share a store. */
export let service: IdempotencyService;

export let others: IdempotencyService;

/** Starts a further application on the store. */
export let startAnother: (options: RedisLockModuleOptions) => Promise<LockApp>;

/** A new one for each test. */
export let key: string;

/** Runs the cases on every store that keeps results. */
export function eachIdempotency(cases: () => void): void {
  describe.each(Object.entries(PRIMITIVE_WORLDS))('IdempotencyService on %s', (_, start) => {
    let world: PrimitiveWorld;
    beforeAll(async () => {
      world = await start();
      startAnother = (options) => startLockApp({ ...world.options(), ...options });
      [one, two] = await Promise.all([startAnother({}), startAnother({})]);
      [service, others] = [one.app.get(IdempotencyService), two.app.get(IdempotencyService)];
    });
    beforeEach(() => {
      key = randomUUID();
    });
    afterAll(async () => {
      await one.close();
      await two.close();
      await world.stop();
    });
    cases();
  });
}
