import { memory, type RedisLockModuleOptions } from 'nest-redis-lock';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { startRedisCluster } from '../support/servers/redis-cluster.js';
import { startRedisServer } from '../support/servers/redis-server.js';

/** Two applications that share a store. */
export let apps: readonly [LockApp, LockApp];

interface World {
  options(): RedisLockModuleOptions;
  stop(): Promise<unknown>;
}

const WORLDS: Readonly<Record<string, () => Promise<World>>> = {
  redis: async () => {
    const server = await startRedisServer();
    return { options: () => ({ redis: server.url }), stop: () => server.stop() };
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

/** Runs the cases on each store that keeps primitives. `subject` names the primitive. */
export function eachPrimitiveBackend(subject: string, cases: () => void): void {
  describe.each(Object.keys(WORLDS))(`${subject} on %s`, (kind) => {
    let world: World;
    beforeAll(async () => {
      world = await (WORLDS[kind] as () => Promise<World>)();
      apps = await Promise.all([startLockApp(world.options()), startLockApp(world.options())]);
    });
    afterAll(async () => {
      for (const app of apps) await app.close();
      await world.stop();
    });
    cases();
  });
}
