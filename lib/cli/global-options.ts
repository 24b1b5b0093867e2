import { Option, type Command } from 'commander';

export const BACKENDS = ['redis', 'postgres', 'mysql', 'etcd', 'zookeeper'] as const;

export type BackendName = (typeof BACKENDS)[number];

/** The options that every command takes. */
export interface GlobalOptions {
  readonly redis: string;
  readonly cluster?: true;
  readonly backend: BackendName;
  readonly url?: string;
  readonly prefix?: string;
  readonly json?: true;
}

export function addGlobalOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--redis <url>', 'the Redis of locks and cache').env('REDIS_URL').default('redis://localhost:6379'),
    )
    .option('--cluster', 'the URL names one node of a Redis Cluster')
    .addOption(new Option('--backend <name>', 'what keeps the locks').choices(BACKENDS).default('redis'))
    .option('--url <url>', 'where another backend is; hosts of etcd and ZooKeeper with commas')
    .option('--prefix <prefix>', 'the prefix of the module')
    .option('--json', 'print JSON; null stands for "never"');
}
