// Mutations of what no backend may have to remember (the table in docs/architecture.md), of permits, and of bugs that
// were mended.

import { given, type Mutation, of, one } from './mutation.js';

const PERMIT_BID = 'primitives/semaphore/permit-bid.ts';
const PERMITS = 'backends/redis/primitives/redis-semaphore-store.ts';
const WATCHDOG = 'lock/grant/watchdog.ts';

/** The store loses its data, and nothing else happens; the next renewal is far away. */
const FORGETFUL = { forgets: true, ttl: 3_000, holdTime: 1_500 };

/** Nothing happens but bodies that block their event loop for longer than the lease of one who waited. */
const BLOCKED = { faultless: true, blocks: 0.3, ttl: 3_000, callers: 4 };

const OF_LOCKS = of('locks', [
  given(
    { clockBack: 3 },
    one(
      'PR3 a lease is trusted for longer than was asked',
      'lock/grant/grant.ts',
      'return answered > 0 ? Math.min(answered, asked) : 0;',
      'return answered > 0 ? answered : 0;',
    ),
  ),
  given(
    { clockBack: 3, emptied: 2, tokensFall: 1 },
    one(
      'tokens: a process gets one that it has seen',
      'lock/grant/grant.ts',
      '    for (const name of names) least = Math.max(least, this.of(name) + (reads ? 0 : 1));\n',
      '',
    ),
  ),
  given(
    BLOCKED,
    one(
      'BL7 a claim is renewed after the body began',
      WATCHDOG,
      '    if (isShort(grant, holder, remaining) && !grant.renewing) this.renew([grant]);',
      '',
    ),
  ),
  given(
    BLOCKED,
    one(
      'standstill: what has arrived is read after its loss was decided',
      'timing/clock.ts',
      '  setImmediate(() => setImmediate(late));',
      '  late();',
    ),
  ),
  given(
    { several: 0.8, ttl: 300, stall: 0.02, stallTime: 200 },
    one(
      'NS1 a call that never had the lock rejects with LockLostError',
      'lock/hold/hold-taker.ts',
      'throw endTurn ? lease.lost : grantedTooLate(backend, lease.grant.names, options, lease.lost);',
      'throw lease.lost;',
    ),
  ),
  given(
    { cuts: 12, silent: 1 },
    one(
      'NS2 a connection that is silent in its handshake is kept',
      'backends/redis/connection/silence-guard.ts',
      "(status !== 'ready' || sent > replies)",
      "status === 'ready' && sent > replies",
    ),
  ),
  given(
    { forgets: true, ttl: 9_000, holdTime: 3_000, callers: 1 },
    one(
      'locks are not renewed after a reconnect',
      'lock/line/named-backend.ts',
      'this.calls.whenConnected.add(() => this.watchdog.renewAll())',
      'this.calls.whenConnected.add(() => {})',
    ),
  ),
  {
    ...one(
      'refusal: a store that refuses is asked again',
      'calls/bounded-call.ts',
      '    this.told.refusal ??= refusalIn(error);\n',
      '',
    ),
    store: 'contract',
  },
  one('a process that waits may end', 'timing/clock.ts', '  if (awaited === 1) keepsAwake.ref();\n', ''),
  one(
    'a shutdown waits for the body that asked for it',
    'lock/hold/hold-taker.ts',
    '    this.asking = new Set<unknown>([...this.context.holds, ...around]);',
    '    this.asking = new Set<unknown>(around);',
  ),
  one(
    'an answer is not kept for a caller that asks later',
    'backends/batch.ts',
    '    if (this.answered || this.outcome) this.forOthers().then(answered, failed);\n    else {',
    '    {',
    'the library asks at once: an application that keeps the call is in the conformance suite',
  ),
]);

const OF_ROBBED_HOLDS = of('robberies', [
  one(
    'linger: what was lost meanwhile is used again',
    'lock/grant/grant.ts',
    '    this.lingerer.lost(this.grant, reason);',
    '    void reason;',
  ),
  one(
    'PR25 a forced release does not reach a holder whose process never waited',
    'lock/line/named-backend.ts',
    'new Watchdog(this.calls, logger, () => void this.contenders.channel.open())',
    'new Watchdog(this.calls, logger, () => {})',
  ),
  one(
    'a hold is looked at after a third of its lease, however long',
    WATCHDOG,
    'const LONGEST_UNRENEWED = 10_000;',
    'const LONGEST_UNRENEWED = 1e9;',
  ),
  one(
    'a hold without renewal is not looked at',
    WATCHDOG,
    'const LONGEST_UNCHECKED = 5_000;',
    'const LONGEST_UNCHECKED = 1e9;',
  ),
  one(
    'permits: one is looked at after a third of its lease, however long',
    WATCHDOG,
    'const LONGEST_UNRENEWED = 10_000;',
    'const LONGEST_UNRENEWED = 1e9;',
  ),
]);

const OF_PERMITS = of('permits', [
  one(
    'permits: one too many',
    'backends/redis/primitives/semaphore.lua.ts',
    'local free = s.limit - taken(s)',
    'local free = s.limit - taken(s) + 1',
  ),
  one(
    'permits: a grant counts from its answer',
    PERMIT_BID,
    "if (answer.status === 'granted') return this.granted(sentAt, answer);",
    "if (answer.status === 'granted') return this.granted(currentInstant(), answer);",
  ),
  given(
    { congestions: 8, slow: 0.1, slowness: 1_500, ttl: 800 },
    one(
      'permits: a grant in a message counts from its arrival',
      PERMIT_BID,
      'this.granted(this.base, grant)',
      'this.granted(currentInstant(), grant)',
    ),
  ),
  given(
    { partitions: 6, partitionTime: 4_000, slow: 0.4, slowness: 400, holdTime: 3_000, ttl: 800, callers: 4 },
    one(
      'permits: a renewal counts from its answer',
      'primitives/semaphore/permit-source.ts',
      'turn.renewed(sentAt, ',
      'turn.renewed({ monotonic: performance.now(), wall: Date.now() }, ',
    ),
  ),
  one(
    'permits: a renewal shortens a lease',
    PERMITS,
    '  if left >= ttl then return left end\n',
    '',
    'no more counts than was asked for, and all holders of a ticket ask for the same',
  ),
  one(
    'permits: a renewal brings back what is gone',
    PERMITS,
    '  if not left then return -1 end\n  if left >= ttl',
    '  left = left or 0\n  if left >= ttl',
  ),
  one(
    'permits: nothing is renewed',
    WATCHDOG,
    '      if (grant.renewing) continue;\n      const period',
    '      continue;\n      const period',
  ),
  one(
    'permits: a claim is renewed after the body began',
    WATCHDOG,
    '    if (isShort(grant, holder, remaining) && !grant.renewing) this.renew([grant]);\n',
    '',
  ),
  one(
    'permits: a ticket that is given up keeps what it was granted',
    'primitives/semaphore/permit-bid.ts',
    '    if (kept) this.source.giveBack(this.request, this.line.settings.ttl, { unanswered: this.failures > 0 });\n',
    '',
    'its claim ends by itself after 2 s, and a late answer or message gives it back',
  ),
  given(
    FORGETFUL,
    one(
      'NF5 permits are not renewed after a reconnect',
      'primitives/semaphore/permit-source.ts',
      'private readonly renewAll = () => this.watchdog.renewAll();',
      'private readonly renewAll = () => {};',
    ),
  ),
]);

const RESULTS = 'backends/redis/primitives/redis-idempotency-store.ts';
const RUNS = 'backends/redis/primitives/redis-run-records.ts';

const OF_OTHERS: readonly Mutation[] = [
  ...of('idempotency', [
    one(
      'idempotency: a first request begins an attempt although a result is kept',
      RESULTS,
      "    if state ~= 'r' then return {${ANSWERED}, record} end\n",
      '',
    ),
    one(
      'idempotency: a result is kept whatever the token',
      RESULTS,
      `    if state ~= 'r' then return token == mine and 1 or 0 end
    if tonumber(token) > tonumber(mine) then return 0 end
`,
      '',
    ),
    one(
      'idempotency: a first request takes a lock that is taken',
      RESULTS,
      'local me, attempt, fingerprint, last = ARGV[arg], 1, ARGV[arg + 3], 0',
      "local me, attempt, fingerprint, last = ARGV[arg], 1, ARGV[arg + 3], 0\n  redis.call('DEL', KEYS[key])",
    ),
    one(
      'idempotency: a last request frees the lock, and keeps no result',
      RESULTS,
      'local kept = keep_result(KEYS[key + 4], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3], ARGV[arg + 4])',
      'local kept = 1',
    ),
    one(
      'idempotency: a result does not stop an attempt',
      RESULTS,
      "if state ~= 'r' or tonumber(token) >= tonumber(ARGV[1]) then return record end",
      '',
    ),
  ]),
  ...of('jobs', [
    one('jobs: the last request frees the name', RUNS, 'if tonumber(ARGV[3]) > 0 then', 'if false then'),
    one(
      'jobs: the last request records no end',
      RUNS,
      'if answer == 1 then record_run(KEYS[5], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]) end',
      '',
    ),
    given(
      { overstays: 0.4, processes: 3 },
      one(
        'jobs: a run with a smaller token is recorded',
        RUNS,
        '  if known > token then return 0 end\n',
        '  if known > token then known = 0 end\n',
      ),
    ),
    one(
      'jobs: the name is free when the run ends',
      'backends/redis/locks/release.lua.ts',
      "      redis.call('PEXPIRE', lock.key, rest)",
      "      redis.call('PEXPIRE', lock.key, 1)",
    ),
  ]),
];

const OF_ENDED_HOLDS: readonly Mutation[] = of('locks', [
  one('linger: nobody who waits gets what lingers', 'lock/line/turn.ts', '    if (this.lingers) this.handBack();', ''),
  one(
    'release in the background: it is never sent',
    'lock/hold/held-lock.ts',
    'const ofLease = lease.source.takeBack(lease, atOnce, trusted);',
    "const ofLease = this.options.release === 'background' ? RELEASED : lease.source.takeBack(lease, atOnce, trusted);",
  ),
]);

export const GUARANTEE_MUTATIONS: readonly Mutation[] = [
  ...OF_ENDED_HOLDS,
  ...OF_LOCKS,
  ...OF_ROBBED_HOLDS,
  ...OF_PERMITS,
  ...OF_OTHERS,
];
