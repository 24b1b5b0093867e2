import { lockAt, QUEUE } from './queue.lua.js';
import { fencingScript } from '../../fencing/fencing-script.js';

/**
 * Takes the lock from its owner or its readers, tells them, and hands the lock on.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters. ARGV: 1 how to publish (see QUEUE).
 * Returns the owner, or a list of the readers, or nil when there was none.
 */
export const FORCE_RELEASE = fencingScript(`
local lock = ${lockAt('1')}
local owner = redis.call('GET', lock.key)
if not owner then return false end
${QUEUE}
redis.call('DEL', lock.key)
local readers = {}
if shared(owner) then
  for i, reader in ipairs(select(2, readers_in(owner))) do readers[i] = reader.ticket end
else
  tell('revoked', owner, '')
end
for _, reader in ipairs(readers) do tell('revoked', reader, '') end
hand_on(lock, '')
return readers[1] and readers or owner
`);
