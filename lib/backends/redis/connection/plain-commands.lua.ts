// Plain commands as scripts: the reply of a script says which call it answers, where that of a command may be one that
// a proxy has doubled, and belong to another key.

import { redisScript } from './redis-script.js';

/** KEYS: 1 string. Returns it, or nil. */
export const GET = redisScript("return redis.call('GET', KEYS[1])");

/** KEYS: 1 key. Returns its time to live in ms, -1 without one, or -2 where there is no such key. */
export const PTTL = redisScript("return redis.call('PTTL', KEYS[1])");

/** KEYS: the keys, of any number: `unpack` takes a few thousand. Returns how many existed. */
export const UNLINK = redisScript(`
local deleted = 0
for _, key in ipairs(KEYS) do deleted = deleted + redis.call('UNLINK', key) end
return deleted
`);

/**
 * One step through the keys of a server. It deletes nothing: before Redis 7, a script that has scanned may not write
 * where its text is replicated.
 *
 * ARGV: 1 cursor, 2 glob, 3 number of keys to look at, then options of SCAN.
 * Returns {next cursor, {key, ...}}.
 */
export const SCAN = redisScript("return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', unpack(ARGV, 3))");
