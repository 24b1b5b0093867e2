import { setTimeout as sleep } from 'node:timers/promises';
import calculateSlot from 'cluster-key-slot';
import { Redis, type Cluster } from 'ioredis';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { RENEWED_OFTEN, renewedAgain } from '../support/renewals.js';
import { startRedisCluster, type RedisCluster } from '../support/servers/redis-cluster.js';

let cluster: RedisCluster;
let client: Cluster;
let app: LockApp;

beforeAll(async () => {
  cluster = await startRedisCluster();
  client = cluster.client();
  app = await startLockApp({ redis: client });
});
afterAll(async () => {
  await app.close();
  client.disconnect();
  await cluster.stop();
});

/** The slot of a name is on its way to another node: begun, and to be ended in two steps. */
async function migrating(name: string) {
  const slot = calculateSlot(`lock:{${name}}`);
  const admins = cluster.servers.map(({ url }) => new Redis(url));
  const ids = await Promise.all(admins.map((admin) => admin.cluster('MYID')));
  const masters = (await (admins[0] as Redis).call('CLUSTER', 'SLOTS')) as [number, number, [string, number, string]][];
  const from = ids.indexOf(masters.find(([first, last]) => first <= slot && slot <= last)?.[2][2] as string);
  const to = (from + 1) % admins.length;
  const [source, target] = [admins[from] as Redis, admins[to] as Redis];
  await target.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', ids[from] as string);
  await source.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', ids[to] as string);
  return {
    async moveKeys() {
      const keys = (await source.call('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[];
      const port = String(cluster.servers[to]?.port);
      if (keys.length > 0) await source.call('MIGRATE', '127.0.0.1', port, '', '0', '5000', 'KEYS', ...keys);
    },
    async finish() {
      for (const admin of [target, source, ...admins]) {
        await admin.call('CLUSTER', 'SETSLOT', slot, 'NODE', ids[to] as string);
      }
      for (const admin of admins) admin.disconnect();
    },
  };
}

it.each([[['moving']], [['{together}:a', '{together}:b']]])(
  'renews %j while the slot is moved, before and after its keys are',
  async (names) => {
    const lock = await app.locks.acquire(names, RENEWED_OFTEN);
    const migration = await migrating(names[0] as string);
    await renewedAgain(lock);
    await migration.moveKeys();
    await renewedAgain(lock);
    await migration.finish();
    await renewedAgain(lock);
    expect(lock.held).toBe(true);
    expect(app.logger.lines).toEqual([]);
    await lock.release();
    await (await app.locks.acquire(names)).release();
  },
);

it('lets in who waited for a lock whose slot is moved', async () => {
  const migration = await migrating('new');
  let entered = false;
  const waiting = app.locks.withLock('new', { wait: 20_000 }, async () => (entered = true));
  await sleep(1_500);
  expect(entered).toBe(false);
  await migration.moveKeys();
  await migration.finish();
  expect(await waiting).toBe(true);
});
