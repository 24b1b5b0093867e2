import { LockConfigError } from '../../errors/lock-errors.js';
import { orFalse, timer, trueOrFalse, type Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import { isRedisClient, requireRedisConnection } from '../redis/connection/connection-options.js';
import { isNodeRedis, isNodeRedisCluster } from '../redis/connection/node-redis-clients.js';
import { FENCE_TTL } from '../redis/locks/queue.lua.js';

/** The options of `redlock()` beside the connections. */
export interface RedlockOptions {
  /**
   * How long an answer of one node is waited for, counted from the request. Only a request that the other nodes have
   * not decided waits at all. A node that stays silent for this time is not asked, while a majority is there without
   * it, until it answers a PING. Keep it below `commandTimeout`, and far below every `ttl`.
   * @default '500ms'
   */
  nodeTimeout?: Duration;
  /**
   * How long a node that has restarted grants nothing, counted from its start: it may have lost locks whose leases
   * still run. At least the longest `ttl` that any process uses. `false` only for nodes that write every command to
   * disk before they answer (`appendonly yes`, `appendfsync always`).
   * @default '30s'
   */
  restartDelay?: Duration | false;
  /**
   * How long each node keeps the counter of the fencing tokens of a name after its last grant. At least 1 s.
   * @default '10m'
   */
  fenceTtl?: Duration;
  /**
   * Whether to take an even number of nodes, or fewer than three. A fourth node tolerates no more failures than three
   * do, and two tolerate none.
   * @default false
   */
  anyCount?: boolean;
}

/** `RedlockOptions` checked, complete, and in ms. */
export interface RedlockSettings {
  readonly nodeTimeout: number;
  /** 0 when nodes keep their locks over a restart. */
  readonly restartDelay: number;
  readonly fenceTtl: number;
  readonly anyCount: boolean;
}

const FEWEST_NODES = 3;
const setting = settingOf<RedlockSettings>();

const OPTIONS = new OptionTable<RedlockOptions, RedlockSettings>(
  lockOption,
  'redlock option',
  '',
  { nodeTimeout: 500, restartDelay: 30_000, fenceTtl: FENCE_TTL, anyCount: false },
  {
    nodeTimeout: setting('nodeTimeout', timer(1)),
    restartDelay: setting('restartDelay', orFalse(0, timer(1))),
    fenceTtl: setting('fenceTtl', timer(1_000)),
    anyCount: setting('anyCount', trueOrFalse),
  },
);

/** @throws LockConfigError with the option, the value and the remedy */
export function redlockSettings(options: RedlockOptions): RedlockSettings {
  return OPTIONS.settings(lockOption.object('options', options, 'an object of redlock options'));
}

/** @throws LockConfigError for a connection that is not one, or for a number of them that tolerates no failure */
export function requireNodes(connections: readonly unknown[], { anyCount }: RedlockSettings): void {
  if (!Array.isArray(connections)) {
    throw lockOption.refused('connections', connections, 'a list of connections, one for each Redis');
  }
  for (const [index, connection] of connections.entries()) requireNode(connection, nodeOption(index));
  const { length } = connections;
  const least = anyCount ? 1 : FEWEST_NODES;
  if (length >= least && (anyCount || length % 2 === 1)) return;
  throw lockOption.conflict(
    `Option "connections" has ${length} ${length === 1 ? 'node' : 'nodes'}; give an odd number of at least ${FEWEST_NODES}, or allow any number with { anyCount: true }`,
  );
}

/** How messages name one of the connections. */
export function nodeOption(index: number): { name: string; ConfigError: typeof LockConfigError } {
  return { name: `connections[${index}]`, ConfigError: LockConfigError };
}

function requireNode(connection: unknown, option: ReturnType<typeof nodeOption>): void {
  requireRedisConnection(option, connection);
  if (
    (isRedisClient(connection) && connection.isCluster) ||
    (isNodeRedis(connection) && isNodeRedisCluster(connection))
  ) {
    throw lockOption.conflict(
      `Option "${option.name}" is a Redis Cluster, whose nodes do not vote one by one; give one connection for each independent Redis`,
    );
  }
}
