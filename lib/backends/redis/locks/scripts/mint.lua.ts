import { lockAt, MORE_TOKENS, QUEUE, TOKENS } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';
import { redisScript } from '../../scripting/redis-script.js';

/**
 * Reserves further tokens for the holders of the process that owns the lock.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 the least token.
 * Returns {first token, tokens}, or {} when the lock no longer holds the ticket. A reader gets one token, which the
 * readers that join from then on share.
 */
export const MINT = fencingScript(`
local lock = ${lockAt('1')}
local owner = redis.call('GET', lock.key)
${QUEUE}
if shared(owner) then
  local _, readers, place = readers_in(owner, ARGV[2])
  if not place then return {} end
  local token = mint(lock, 1, tonumber(ARGV[3]))
  store_readers(lock.key, token, readers)
  return {token, 1}
end
if owner ~= ARGV[2] then return {} end
return {mint(lock, ${MORE_TOKENS}, tonumber(ARGV[3]))}
`);

/**
 * Reserves tokens without a look at the lock: its owner has to see that it still owns it afterwards. See `oneKeySteps`.
 *
 * KEYS: 1 fence. ARGV: 1 how many at most, 2 the least token. Returns {first token, tokens}.
 */
export const MINT_ALONE = fencingScript(`
${TOKENS}
return {mint({fence = KEYS[1]}, tonumber(ARGV[1]), tonumber(ARGV[2]))}
`);

/** KEYS: 1 fence. Returns the first token not yet issued. */
export const UNISSUED = redisScript(`
return redis.call('GET', KEYS[1]) or '0'
`);
