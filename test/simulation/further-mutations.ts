// Mutations of what is built on the locks, of the cache, of the guarantees, and of bugs that were mended.

import { type Mutation, one } from './mutation-list.js';
import type { Kind } from './swarm.js';

const CACHE = 'backends/redis/cache/loads.lua.ts';

function of(kind: Kind, mutation: Mutation): Mutation {
  return { ...mutation, kind };
}

export const FURTHER_MUTATIONS: readonly Mutation[] = [
  of(
    'permits',
    one(
      'permits: one too many',
      'backends/redis/primitives/semaphore.lua.ts',
      'local free = s.limit - taken(s)',
      'local free = s.limit - taken(s) + 1',
    ),
  ),
  of(
    'permits',
    one(
      'permits: a renewal counts from its answer',
      'primitives/semaphore/permit-watchdog.ts',
      'else turn.holder?.renewed(sentAt, remaining);',
      'else turn.holder?.renewed(currentInstant(), remaining);',
    ),
  ),
  of(
    'permits',
    one(
      'NF5 permits are not renewed after a reconnect',
      'primitives/semaphore/permit-source.ts',
      'backend.whenConnected?.(() => this.watchdog.renewAll())',
      'backend.whenConnected?.(() => {})',
    ),
  ),
  of(
    'locks',
    one(
      'locks are not renewed after a reconnect',
      'lock/line/named-backend.ts',
      'backend.whenConnected?.(() => this.watchdog.renewAll())',
      'backend.whenConnected?.(() => {})',
    ),
  ),
  of(
    'idempotency',
    one(
      'idempotency: a result does not stop an attempt',
      'backends/redis/primitives/redis-idempotency-store.ts',
      "if state ~= 'r' or tonumber(token) >= tonumber(ARGV[1]) then return record end",
      '',
    ),
  ),
  of(
    'jobs',
    one(
      'jobs: the name is free when the run ends',
      'backends/redis/locks/release.lua.ts',
      "      redis.call('PEXPIRE', lock.key, rest)",
      "      redis.call('PEXPIRE', lock.key, 1)",
    ),
  ),
  of(
    'cache',
    one(
      'cache: a load without the lease is stored',
      CACHE,
      "  if not held or string.sub(held, 2) ~= ARGV[a] then return 0 end\n  redis.call('SET'",
      "  held = held or '0'\n  redis.call('SET'",
    ),
  ),
  of(
    'cache',
    one(
      'cache: an invalidation leaves the lease',
      CACHE,
      "found = redis.call('UNLINK', KEYS[k]) end\n  redis.call('DEL', KEYS[k + 1])",
      "found = redis.call('UNLINK', KEYS[k]) end",
    ),
  ),
  of(
    'cache',
    one(
      'cache: an invalidation leaves the value',
      CACHE,
      "then found = redis.call('UNLINK', KEYS[k]) end",
      'then found = 0 end',
    ),
  ),
  of(
    'locks',
    one(
      'PR3 a lease is trusted for longer than was asked',
      'lock/grant/grant.ts',
      'return answered > 0 ? Math.min(answered, asked) : 0;',
      'return answered > 0 ? answered : 0;',
    ),
  ),
  of(
    'locks',
    one(
      'BL7 a claim is renewed after the body began',
      'lock/grant/watchdog.ts',
      '    if (holder) this.renewIfShort(grant, holder);',
      '',
    ),
  ),
  of(
    'locks',
    one(
      'linger: nobody who waits gets what lingers',
      'lock/line/turn.ts',
      '    if (this.contender.lingers) this.handBack();',
      '',
    ),
  ),
  of(
    'locks',
    one(
      'linger: what was lost meanwhile is used again',
      'lock/grant/grant.ts',
      '    this.lingerer.lost(this.grant, reason);',
      '    void reason;',
    ),
  ),
  of(
    'locks',
    one(
      'release in the background: it is never sent',
      'lock/hold/held-lock.ts',
      'const ofLease = lease.source.takeBack(lease, atOnce, trusted);',
      "const ofLease = this.options.release === 'background' ? RELEASED : lease.source.takeBack(lease, atOnce, trusted);",
    ),
  ),
  of(
    'locks',
    one(
      'NS1 a call that never had the lock rejects with LockLostError',
      'lock/hold/hold-taker.ts',
      'throw endTurn ? lease.lost : grantedTooLate(backend, lease.grant.names, options, lease.lost);',
      'throw lease.lost;',
    ),
  ),
  of(
    'locks',
    one(
      'NS2 a connection that is silent in its handshake is kept',
      'backends/redis/connection/silence-guard.ts',
      "(status !== 'ready' || sent > replies)",
      "status === 'ready' && sent > replies",
    ),
  ),
];
