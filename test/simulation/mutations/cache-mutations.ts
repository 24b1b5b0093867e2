// Mutations of the cache's protocol: one for each rule of "Why it is safe" in docs/cache-protocol.md.

import { NO_OTHER_FAULTS } from '../swarm.js';
import { given, type Mutation, of, one } from './mutation.js';

const LOADS = 'backends/redis/cache/loads.lua.ts';
const DELETIONS = 'backends/redis/cache/redis-deletions.ts';
const STATE = 'cache/invalidation/local-state.ts';
const FLIGHTS = 'cache/read/single-flight.ts';
const TAGS = 'backends/redis/cache/redis-cache-tags.ts';

const OF_CHANGES: readonly Mutation[] = of('cache', [
  one(
    'cache: a load without the lease is stored',
    LOADS,
    'string.sub(held, 2) ~= string.sub(unwaited, 2)) then return 0 end',
    'false) then held = unwaited end',
  ),
  one(
    'cache: an invalidation leaves the lease',
    LOADS,
    "found = redis.call('UNLINK', KEYS[k]) end\n  redis.call('DEL', KEYS[k + 1])",
    "found = redis.call('UNLINK', KEYS[k]) end",
  ),
  one(
    'cache: an invalidation leaves the value',
    LOADS,
    "then found = redis.call('UNLINK', KEYS[k]) end",
    'then found = 0 end',
  ),
  one(
    'cache: the loader runs before the lease',
    'cache/read/fill.ts',
    '  private requestLease(present: Buffer | undefined): void {\n',
    `  private requestLease(present: Buffer | undefined): void {
    const loaded = Promise.resolve(this.read.loader({ setTags() {}, skip() {} } as never));
    Object.assign(this.read, { loader: () => loaded });
`,
  ),
  one(
    'cache: all loads of a process have one token',
    'cache/cache-engine.ts',
    '    return `${instance}:${tokens}`;',
    '    return instance;',
  ),
  one(
    'cache: a lost lease is taken back',
    LOADS,
    `if not held or string.sub(held, 2) ~= ARGV[1] then return 0 end
if redis.call('PTTL'`,
    `if not held then redis.call('SET', KEYS[1], '0' .. ARGV[1], 'PX', ARGV[2]) return 1 end
if string.sub(held, 2) ~= ARGV[1] then return 0 end
if redis.call('PTTL'`,
  ),
  one(
    'cache: a lease that is granted too late is kept',
    'cache/load/load-lease.ts',
    "    if (status === 'leased') releaseLease(this.calls, key, token);",
    '    void status;',
    'it ends by itself after lock.lease: others wait for that long',
  ),
  given(
    { ...NO_OTHER_FAULTS, slow: 0.4, slowness: 60, processes: 3, callers: 4 },
    one(
      'cache: values are deleted before their leases',
      DELETIONS,
      `  await deleteAll(scripts, leases, batch);
  return deleteAll(scripts, values, batch, spares && ((name) => spares(keys.keyOf(name))));`,
      `  const deleted = await deleteAll(scripts, values, batch, spares && ((name) => spares(keys.keyOf(name))));
  await deleteAll(scripts, leases, batch);
  return deleted;`,
    ),
  ),
  given(
    { readOnly: 8, fullTime: 1_500 },
    one(
      'cache: a process reads past a deletion that is not confirmed',
      'cache/read/read.ts',
      '    if (unconfirmed.pending.size > 0 && unconfirmed.pending.covering(key)) return this.doWithoutDoubted();\n',
      '',
    ),
  ),
  one('cache: a soft expiry leaves the value fresh', LOADS, '  flags = flags + ${HEADER.expired}\n', ''),
  one(
    'cache: a barrier refuses no lease',
    LOADS,
    "return call('ZRANGEBYSCORE', barrier, string.format('(%.0f', now() / 1000), '+inf', 'LIMIT', 0, 1)[1]",
    'return false',
  ),
  one(
    'cache: a read that takes the lease at once looks at no barrier',
    LOADS,
    "call('EXISTS', unpack(others, from, to)) == 0",
    "call('EXISTS', unpack(others, from, to)) >= 0",
  ),
  one(
    'cache: the end of one write lifts the barriers of others',
    LOADS,
    "if ARGV[a + 3] ~= '' then redis.call('ZREM', KEYS[k + 2], ARGV[a + 3]) end",
    "if ARGV[a + 3] ~= '' then redis.call('DEL', KEYS[k + 2]) end",
  ),
  one(
    'cache: mutate raises no barrier before the write',
    'cache/invalidation/invalidations.ts',
    '(key) => ({ key, barrier: { token, ttl: WRITE_BARRIER } })',
    '(key) => ({ key })',
  ),
  one(
    'cache: a value with an older version of its tag counts',
    'cache/read/stored-values.ts',
    '    if (state === version) continue;',
    '    continue;',
  ),
  one(
    'cache: an invalidated tag keeps its version',
    TAGS,
    "  redis.call('SET', key, version, 'PX', string.format('%.0f', ttl))",
    "  if i > 1 then redis.call('SET', key, version, 'PX', string.format('%.0f', ttl)) end",
  ),
  one(
    'cache: a tag that the loader names may have been invalidated since the lease',
    'cache/load/tag-stamps.ts',
    '      if (version > granted.at && (!begun || mayBeEvicted)) return undefined;\n',
    '',
  ),
  one(
    'cache: a read is joined although this process has invalidated its key',
    STATE,
    '    this.flights.detach(key);\n    this.waiters',
    '    this.waiters',
  ),
  one(
    'cache: a strong read joins one that began before',
    FLIGHTS,
    '!settings.strong && this.busConnected',
    'this.busConnected',
  ),
  given(
    {
      ...NO_OTHER_FAULTS,
      messageCuts: 8,
      messageCutTime: 8_000,
      longestLoad: 8_000,
      firstLevel: false,
      processes: 2,
      callers: 8,
    },
    one(
      'cache: reads are joined while messages may be missed',
      FLIGHTS,
      '!settings.strong && this.busConnected',
      '!settings.strong',
    ),
  ),
  given(
    { firstLevel: true, pauses: 8 },
    one(
      'cache: a first level answers before it has read what arrived during a standstill',
      'cache/values/first-level.ts',
      '    if (now - this.readAt > LONGEST_UNREAD) return undefined;\n',
      '',
    ),
  ),
  given(
    { firstLevel: true, partitions: 6, partitionTime: 4_000, pauses: 0 },
    one(
      'cache: a first level keeps its values while messages may be missed',
      'cache/values/first-level.ts',
      `    this.silent.add(source);
    this.trusted = false;
    clearInterval(this.timer);
    this.generation += 1;
    if (this.settings.whileAway === 0) return this.flush();`,
      '    if (this.settings.whileAway >= 0) return;',
    ),
  ),
  given(
    { firstLevel: true, slow: 0.4, slowness: 60, callers: 8 },
    one(
      'cache: a first level keeps what was read before a message of its key',
      'cache/read/read.ts',
      'if (this.outdated || this.endedEarly ||',
      'if (this.endedEarly ||',
    ),
  ),
  given(
    { firstLevel: true },
    one(
      'cache: a process keeps its own first level after a change',
      STATE,
      `  forget(key: string): void {
    this.firstLevel?.delete(key);`,
      '  forget(key: string): void {',
    ),
  ),
  given(
    { lateOf: 'SET', lateCopies: 0.5 },
    one(
      'cache: a set whose request was sent twice ends with its answer',
      'cache/value-changes.ts',
      '        if (store.resends !== resends) await untilRefused();\n',
      '',
    ),
  ),
  given(
    { ...NO_OTHER_FAULTS, lateCopies: 0.3, callers: 4 },
    one(
      'cache: a lease that was asked for twice is used',
      'cache/load/load-lease.ts',
      'if (this.calls.store.resends !== resends) {',
      'if (false) {',
    ),
  ),
  given(
    { lateCopies: 0.05 },
    one(
      'cache: a set that comes too late is stored',
      'backends/redis/cache/values.lua.ts',
      '  if before and now >= before then return -now end\n',
      '',
    ),
  ),
  given(
    { scriptFlushes: 4 },
    one(
      'cache: changes of one process overtake each other',
      'cache/invalidation/step-order.ts',
      '      for (const { before } of groups) if (before) await before;\n',
      '',
    ),
  ),
  one(
    'B18 a load that stores nothing leaves the value that it found outdated',
    LOADS,
    "if ARGV[4] ~= '' then\n  redis.call('UNLINK', KEYS[2])",
    "if ARGV[4] ~= '' then",
  ),
]);

const OF_READS: readonly Mutation[] = of('misses', [
  one('cache: the next call does not wait for the commit', 'cache/load/load.ts', '      stepOrder.enter(key);\n', ''),
  one(
    'cache: a read takes the lease although there is a value',
    LOADS,
    '  if values[i] then return values[i] end\n',
    '',
  ),
  one(
    'cache: a value that is read in the place of a lease counts, whatever became of its tags',
    'cache/read/read.ts',
    'stamp[tag] === tagVersions[index]?.version',
    'stamp[tag] !== undefined && tagVersions[index]',
  ),
]);

export const CACHE_MUTATIONS: readonly Mutation[] = [...OF_CHANGES, ...OF_READS];
