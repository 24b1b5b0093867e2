import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis, type RedisOptions } from 'ioredis';
import { freePort } from '../../../sample-app/servers/server-process.js';
import { requireRedisServerProgram, startRedisServer, type RedisServer } from './redis-server.js';
import { ServerProcess } from './server-process.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';
import { eventually } from '../eventually.js';

export interface RedisSentinel {
  readonly master: RedisServer;
  readonly replica: RedisServer;
  /** Of the sentinel. */
  readonly port: number;
  /** For a client that asks the sentinel who the master is. */
  readonly options: RedisOptions;
  stop(): Promise<void>;
}

const NAME = 'main';
const HOST = '127.0.0.1';
const PROMPT = ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];

/** A master, a replica, and one sentinel that takes a master which is silent for `downAfter` ms for dead. */
export async function startRedisSentinel(downAfter = 60_000): Promise<RedisSentinel> {
  const master = await startRedisServer({ args: PROMPT });
  const replica = await startRedisServer({ args: ['--replicaof', HOST, String(master.port), ...PROMPT] });
  const port = await freePort();
  const directory = temporaryDirectory();
  const settings = join(directory, 'sentinel.conf');
  writeFileSync(
    settings,
    [
      `port ${port}`,
      `bind ${HOST}`,
      `dir ${directory}`,
      `sentinel monitor ${NAME} ${HOST} ${master.port} 1`,
      `sentinel down-after-milliseconds ${NAME} ${downAfter}`,
      `sentinel failover-timeout ${NAME} 3000`,
      '',
    ].join('\n'),
  );
  const admin = new Redis({ host: HOST, port, retryStrategy: () => 50 });
  admin.on('error', () => {});
  const sentinel = await ServerProcess.start({
    command: requireRedisServerProgram(),
    directory,
    args: [settings, '--sentinel'],
    ready: () => admin.ping(),
  });
  const follower = new Redis(replica.url);
  await eventually(async () => ((await admin.call('SENTINEL', 'REPLICAS', NAME)) as unknown[]).length === 1, {
    within: 15_000,
  });
  await eventually(async () => (await follower.info('replication')).includes('master_link_status:up'));
  follower.disconnect();
  admin.disconnect();
  return {
    master,
    replica,
    port,
    options: { sentinels: [{ host: HOST, port }], name: NAME, sentinelRetryStrategy: () => 50 },
    stop: async () => {
      await sentinel.stop();
      await Promise.all([master.stop(), replica.stop()]);
      removeDirectory(directory);
    },
  };
}
