// Mutations of the rules of docs/protocol.md.

import { NO_OTHER_FAULTS } from '../swarm.js';
import { given, type Mutation, one } from './mutation.js';

const ACQUIRE = 'backends/redis/locks/acquire.lua.ts';
const QUEUE = 'backends/redis/locks/queue.lua.ts';
const RELEASE = 'backends/redis/locks/release.lua.ts';
const ATTEMPT = 'lock/line/attempt.ts';
const GRANT = 'lock/grant/grant.ts';
const LINES = 'lock/line/lines.ts';
const TURN = 'lock/line/turn.ts';

/** One process always has a caller, and no message reaches it. */
const CROWDED_AND_DEAF = {
  deaf: true,
  callers: 4,
  holdTime: 300,
  reads: 0,
  kinds: ['locks'],
} satisfies Mutation['swarm'];

/** All want to write one name, and wait for it. */
const PLAIN = {
  reads: 0,
  several: 0,
  fifo: 0,
  givesUp: 0,
  atOnce: 0,
  names: ['a'],
  kinds: ['locks'],
} satisfies Mutation['swarm'];

/** Requests are sent again, and arrive once more when their ticket is done for; what the server says comes late. */
const TWICE_AND_LATE = {
  ...NO_OTHER_FAULTS,
  ...PLAIN,
  lateCopies: 0.15,
  processes: 6,
  callers: 1,
  ttl: 300,
  holdTime: 100,
  commandTimeout: 3_000,
  maxRetriesPerRequest: null,
} satisfies Mutation['swarm'];

/** Each heartbeat may arrive once more when its ticket is done for, and nothing else happens. */
const LATE_HEARTBEATS = {
  ...NO_OTHER_FAULTS,
  ...PLAIN,
  lateCopies: 0.3,
  lateOf: 'BEAT',
  processes: 3,
  callers: 2,
  ttl: 800,
  holdTime: 300,
  overstays: 0,
  lingers: 0,
  background: 0,
  commandTimeout: 3_000,
  maxRetriesPerRequest: null,
} satisfies Mutation['swarm'];

const QUEUES: Mutation['edits'][number] = {
  file: ACQUIRE,
  text: 'if not alive then return {-1} end',
  becomes: `if not alive then
  deaf, purpose = 0, '800:' .. string.match(lock.key, '{(.*)}')
  join(lock, me, purpose)
end`,
};
const KEEPS: Mutation['edits'][number] = {
  file: LINES,
  text: 'else if (!contender?.owns(ticket)) releaser.abandon({ names: [name], ticket }, message.claim);',
  becomes: '',
};
const GRANTS: Mutation['edits'][number] = {
  file: QUEUE,
  text: "type(waiting) == 'number' and waiting or 0}",
  becomes: '0}',
};
const RENEWALS: Mutation['edits'][number] = {
  file: RELEASE,
  text: "    if type(length) == 'number' then waiting = length end\n",
  becomes: '',
};

export const LOCK_MUTATIONS: readonly Mutation[] = [
  one('R1 every attempt has the same ticket', LINES, 'return this.tickets;', 'return 1;'),
  one('R1 release without compare', RELEASE, '  if owner == ARGV[arg] then', '  if owner then'),
  one('R1 renewal without compare', RELEASE, '  if value == ticket then', '  if value then'),
  given(LATE_HEARTBEATS, {
    name: 'R2 a heartbeat queues a ticket',
    edits: [QUEUES],
  }),
  given(LATE_HEARTBEATS, {
    name: 'R2 and R13: a heartbeat queues a ticket, and what it is granted then is kept',
    edits: [QUEUES, KEEPS],
  }),
  one(
    'R3 enqueue of the owner is not granted again',
    ACQUIRE,
    `    if owner == me then return granted(lock, mint(lock)) end
    if not owner then`,
    '    if not owner then',
    'its heartbeat is granted again; one that never queues costs a lease',
  ),
  one(
    'R4 enqueue queues a ticket twice',
    QUEUE,
    "  if redis.call('HEXISTS', lock.waiters, ticket) == 0 then redis.call('RPUSH', lock.queue, ticket) end",
    "  redis.call('RPUSH', lock.queue, ticket)",
    'the one that hands on drops a ticket that is not waiting',
  ),
  one(
    'R5 a grant counts from its answer',
    ATTEMPT,
    'this.begun(sentAt, answer, this.ttl, sentAt)',
    'this.begun(currentInstant(), answer, this.ttl, sentAt)',
  ),
  one('R5 a grant in a message counts from its arrival', ATTEMPT, 'this.begun(base,', 'this.begun(currentInstant(),'),
  one(
    'R5 a renewal counts from its answer',
    GRANT,
    '    this.confirmedAt = Math.floor(sentAt.monotonic);',
    '    sentAt = currentInstant();\n    this.confirmedAt = Math.floor(sentAt.monotonic);',
  ),
  one('R5 no drift is taken off', 'timing/clock.ts', 'return lease * 0.01 + 2;', 'return 0;'),
  one('R6 a claim is a whole lease', ATTEMPT, '? ttl : Math.min(LONGEST_CLAIM, ttl);', '? ttl : 10 * ttl;'),
  one('R7 a renewal shortens a lease', RELEASE, '    if remaining < ttl then', '    if true then'),
  given(
    TWICE_AND_LATE,
    one('R8 a message of an earlier grant counts', ATTEMPT, 'if (tokens.first < this.unissued) return;', ''),
  ),
  given(
    {
      full: 40,
      fullTime: 200,
      reads: 0.5,
      overstays: 0.7,
      ttl: 300,
      processes: 3,
      callers: 4,
      names: ['a'],
      kinds: ['locks'],
    },
    one(
      'R9 the message is sent before the key is written',
      QUEUE,
      "  redis.call('SET', lock.key, ticket, 'PX', claim)\n  local token, count = mint(lock)",
      `  local early = whole(math.max(micros, tonumber(unissued(lock))))
  if known ~= 'caller' then tell('grant', ticket, ' ' .. early .. ' 1 ' .. claim .. ' 0 ' .. name) end
  redis.call('SET', lock.key, ticket, 'PX', claim)
  local token, count = mint(lock)`,
    ),
  ),
  given(
    { ...PLAIN, unheard: true, messageCuts: 3, messageCutTime: 12_000, callers: 4, processes: 3, holdTime: 100 },
    one(
      'R10 who is not reached loses its place',
      QUEUE,
      '          unreached[process] = true',
      '          leave(lock, ticket) unreached[process] = true',
    ),
  ),
  given(
    { ...PLAIN, deaths: 1, restarts: 6, processes: 3 },
    one(
      'R10 who is not reached stays the owner',
      QUEUE,
      "if tell('grant', ticket, rest) > 0 or not counted or known == 'alive' then return token, count end\nend",
      "tell('grant', ticket, rest)\n  return token, count\nend",
    ),
  ),
  given(CROWDED_AND_DEAF, { name: 'R11 messages alone say that others wait', edits: [GRANTS, RENEWALS] }),
  given(CROWDED_AND_DEAF, { name: 'R11 no renewal says that others wait', edits: [RENEWALS] }),
  given(CROWDED_AND_DEAF, {
    name: 'R11 no grant says that others wait',
    edits: [GRANTS],
    covered: 'the next renewal does, 0.5 s later',
  }),
  {
    name: 'R11 no heartbeat says that others wait',
    edits: [
      {
        file: ACQUIRE,
        text: 'if owner and not (reads and shared(owner)) then want(',
        becomes: 'if false then want(',
      },
    ],
    covered: 'the renewals of the owner do, every 0.5 s while its own callers wait',
  },
  {
    name: 'R12 a message for another ticket counts',
    edits: [
      {
        file: LINES,
        text: 'else if (contender?.attempt?.ticket === ticket)',
        becomes: 'else if (contender?.attempt)',
      },
    ],
  },
  one(
    'R12 an answer for another ticket counts',
    ATTEMPT,
    '    if (contender.attempt !== this) {\n      // The message',
    '    if (!contender.attempt) {\n      // The message',
  ),
  given(LATE_HEARTBEATS, {
    name: 'R13 a grant for nobody is not released',
    edits: [KEEPS],
    covered: 'its ticket was released when it was given up; and R2: none is queued by a late heartbeat',
  }),
  one(
    'R13 a ticket that is given up is not released',
    ATTEMPT,
    '    backend.releaser.abandon({ names, ticket }, ttl);',
    '    void [names, backend, ticket, ttl];',
    'what it is granted is released, because nobody wants it',
  ),
  {
    name: 'R13 neither is released',
    edits: [
      KEEPS,
      {
        file: ATTEMPT,
        text: '    backend.releaser.abandon({ names, ticket }, ttl);',
        becomes: '    void [names, backend, ticket, ttl];',
      },
    ],
  },
  given(
    {
      ...PLAIN,
      slow: 0.4,
      slowness: 400,
      ttl: 800,
      callers: 4,
      overstays: 0.5,
      givesUp: 0.3,
      holdTime: 300,
      commandTimeout: 3_000,
    },
    one(
      'R14 a requeued ticket counts from the answer',
      TURN,
      `            attempt.answered(sentAt, answer);
            return ended('released');`,
      `            attempt.answered({ monotonic: performance.now(), wall: Date.now() }, answer);
            return ended('released');`,
    ),
  ),
  one(
    'R15 a caller enters with any lease',
    TURN,
    'export const LEAST_SHARE = 1 / 4;',
    'export const LEAST_SHARE = -1e6;',
    'a lease that has ended is taken again before its caller gets it, and a short one renewed before its body begins',
  ),
  given(
    { ...PLAIN, slow: 0.4, slowness: 1_500, ttl: 800, callers: 2, holdTime: 1_000, eager: 1 },
    one(
      'R16 a loss is not final',
      'lock/grant/lease.ts',
      'if (this.over) return 0;',
      'if (this.over === true) return 0;',
    ),
  ),
  one(
    'R17 a heartbeat hands nothing on',
    ACQUIRE,
    'if not owner or shared(owner) then\n    local ticket, token, count = hand_on(lock, me, owner)',
    'if false then\n    local ticket, token, count = hand_on(lock, me, owner)',
  ),
  one(
    'R17 a waiter sends no heartbeat after a failed one',
    ATTEMPT,
    '        contender.error = error;\n        this.beatAfter(contender.backOff());',
    '        contender.error = error;',
  ),
  given(
    TWICE_AND_LATE,
    one(
      'tokens: a grant that is renewed after its end keeps its tokens',
      'lock/line/preparation.ts',
      '        if (grant.remaining() <= 0) grant.skipTokensBelow(Infinity);\n',
      '',
    ),
  ),
  given(
    { clockBack: 4 },
    one(
      'tokens come from the clock alone',
      QUEUE,
      'local first = math.max(tonumber(unissued(lock)), floor or 0)',
      'local first = floor or 0',
    ),
  ),
  one(
    'readers: one that leaves takes the others along',
    RELEASE,
    '    store_readers(key, token, others, true)\n',
    "    redis.call('DEL', key)\n",
  ),
  one(
    'readers: a writer enters beside them',
    ACQUIRE,
    'if owner == me then return granted(lock, mint(lock)) end\n    if not owner then',
    "if owner == me or shared(owner) then redis.call('SET', lock.key, me, 'PX', ttl) return granted(lock, mint(lock)) end\n    if not owner then",
  ),
  {
    name: 'readers: a reader enters beside a writer',
    edits: [
      {
        file: 'backends/redis/locks/readers.lua.ts',
        text: '  if not owner or shared(owner) and not (queued and writer_waits(lock)) then',
        becomes: '  if true then',
      },
      {
        file: 'backends/redis/locks/readers.lua.ts',
        text: 'if owner then token, readers = readers_in(owner) else',
        becomes: 'if shared(owner) then token, readers = readers_in(owner) else',
      },
    ],
  },
  one('loss: the watchdog tells nobody', 'lock/grant/lease.ts', '    this.abort(error);\n', ''),
  one(
    'leak: a timer outlives the module',
    'backends/redis/connection/silence-guard.ts',
    '    clearInterval(this.timer);',
    '',
  ),
];
