import { HASH_COMMANDS, LIST_COMMANDS, SET_COMMANDS } from './collections.js';
import type { Command } from './command.js';
import { CONNECTION_COMMANDS } from './connections.js';
import { KEY_COMMANDS, STRING_COMMANDS } from './keys.js';
import { SORTED_SET_COMMANDS } from './sorted-sets.js';

export { NOT_IN_SCRIPTS, WHILE_SUBSCRIBED } from './connections.js';

export const COMMANDS: ReadonlyMap<string, Command> = new Map(
  Object.entries({
    ...CONNECTION_COMMANDS,
    ...KEY_COMMANDS,
    ...STRING_COMMANDS,
    ...HASH_COMMANDS,
    ...LIST_COMMANDS,
    ...SET_COMMANDS,
    ...SORTED_SET_COMMANDS,
  }),
);

/** What a server without memory refuses. */
export const NEEDS_MEMORY: ReadonlySet<string> = new Set([
  'hset',
  'incr',
  'incrby',
  'linsert',
  'rpush',
  'sadd',
  'set',
  'setbit',
  'zadd',
]);

/** What a replica refuses. */
export const WRITES: ReadonlySet<string> = new Set([
  ...NEEDS_MEMORY,
  'del',
  'flushall',
  'hdel',
  'lrem',
  'persist',
  'pexpire',
  'pexpireat',
  'rename',
  'srem',
  'unlink',
  'zrem',
  'zremrangebyscore',
]);
