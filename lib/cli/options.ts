import { Option, InvalidArgumentError, CommanderError, type Command } from 'commander';
import { messageOf } from '../errors/limited-log.js';
import { CacheConfigError, CacheKeyError } from '../errors/cache-errors.js';
import { LockConfigError, LockKeyError } from '../errors/lock-errors.js';

export const BACKENDS = ['redis', 'postgres', 'mysql', 'etcd', 'zookeeper'] as const;

/** What SQL servers keep locks by. */
const KINDS = ['leaseTable', 'advisory', 'getLock'] as const;

export type BackendName = (typeof BACKENDS)[number];

/** The options that every command takes. */
export interface GlobalOptions {
  readonly redis: string;
  readonly cluster?: true;
  readonly backend: BackendName;
  readonly url?: string;
  readonly kind?: (typeof KINDS)[number];
  readonly schema?: string;
  readonly table?: string;
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
    .addOption(new Option('--kind <kind>', 'its kind at PostgreSQL and MySQL; leaseTable by default').choices(KINDS))
    .option('--schema <schema>', 'its schema at PostgreSQL; nest_redis_lock by default')
    .option('--table <table>', 'its table at MySQL; by default that of the kind')
    .option('--prefix <prefix>', 'the prefix of the module')
    .option('--json', 'print JSON; null stands for "never"');
}

/** About how many locks to show. */
export function limitOption(): Option {
  return new Option('--limit <count>', 'about how many locks to show, up to 10000').default(100).argParser((value) => {
    const limit = Number(value);
    if (Number.isInteger(limit) && limit >= 1 && limit <= 10_000) return limit;
    throw new InvalidArgumentError('Give a whole number from 1 to 10000.');
  });
}

/** What the program exits with. */
export const EXIT = { done: 0, notFound: 1, usage: 2, unavailable: 3 } as const;

const OF_USAGE = [LockConfigError, LockKeyError, CacheConfigError, CacheKeyError];

/** A wrong argument or option. */
export class UsageError extends Error {}

export function exitCodeOf(error: unknown): number {
  // Help and the version are no failures.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
  if (error instanceof UsageError || OF_USAGE.some((each) => error instanceof each)) return EXIT.usage;
  return EXIT.unavailable;
}

/** The message without a stack trace, in one line. */
export function lineOf(error: unknown): string {
  return messageOf(error).split('\n').join(' ');
}
