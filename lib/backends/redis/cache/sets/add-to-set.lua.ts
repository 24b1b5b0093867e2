import { redisScript } from '../../scripting/redis-script.js';

/**
 * Adds members to a set, whose time to live begins anew.
 *
 * KEYS: 1 set. ARGV: 1 time to live in ms (empty: no end), then the members.
 * Returns how many are new.
 */
export const ADD_TO_SET = redisScript(`
local added = 0
for i = 2, #ARGV do added = added + redis.call('SADD', KEYS[1], ARGV[i]) end
if ARGV[1] == '' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return added
`);
