import { Cluster, Redis } from 'ioredis';
import { freePort } from '../../../sample-app/servers/server-process.js';
import { startRedisServer, type RedisServer } from './redis-server.js';
import { eventually } from '../eventually.js';

export interface RedisCluster {
  readonly servers: readonly RedisServer[];
  client(): Cluster;
  stop(): Promise<void>;
}

const SLOTS = 16_384;

/** Three masters, each with a third of the slots. */
export async function startRedisCluster(): Promise<RedisCluster> {
  const settings = [
    '--cluster-enabled',
    'yes',
    '--cluster-config-file',
    'nodes.conf',
    '--cluster-node-timeout',
    '15000',
  ];
  const servers = await Promise.all(
    [1, 2, 3].map(async () => {
      const bus = ['--cluster-port', String(await freePort())];
      return startRedisServer({ args: [...settings, ...bus] });
    }),
  );
  const admins = servers.map(({ url }) => new Redis(url));
  const bounds = servers.map((_, index) => Math.floor((index * SLOTS) / servers.length));
  for (const [index, admin] of admins.entries()) {
    await admin.call('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
    await admin.call('CLUSTER', 'ADDSLOTSRANGE', bounds[index] as number, (bounds[index + 1] ?? SLOTS) - 1);
  }
  const busPorts = await Promise.all(admins.map(async (admin) => (await admin.config('GET', 'cluster-port'))[1]));
  // Each meets each, as gossip may take seconds to spread.
  for (const [from, admin] of admins.entries()) {
    for (const [index, { port }] of servers.entries()) {
      if (index > from) await admin.call('CLUSTER', 'MEET', '127.0.0.1', port, busPorts[index] as string);
    }
  }
  for (const admin of admins) {
    await eventually(async () => /cluster_state:ok[^]*cluster_known_nodes:3/.test(await admin.cluster('INFO')), {
      within: 15_000,
    });
    admin.disconnect();
  }
  return {
    servers,
    client: () =>
      new Cluster(
        servers.map(({ port }) => ({ host: '127.0.0.1', port })),
        // A busy machine takes longer than the second that is the default.
        { slotsRefreshTimeout: 20_000 },
      ),
    stop: async () => {
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}
