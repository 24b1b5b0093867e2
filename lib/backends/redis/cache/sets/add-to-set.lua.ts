import { redisScript } from '../../scripting/redis-script.js';

/**
 * Adds members to a set and restarts its time to live.
 *
 * KEYS: 1 set. ARGV: 1 time to live in ms (empty: none), then the members.
 * Returns the number of new members.
 */
export const ADD_TO_SET = redisScript(`
local added = 0
for i = 2, #ARGV do added = added + redis.call('SADD', KEYS[1], ARGV[i]) end
if ARGV[1] == '' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return added
`);
