// Which faults and which kinds of calls a schedule has, and how many: each seed leaves some out, because a fault that
// happens all the time hides what others would show.

import type { Random } from './redis/random.js';

/** What callers call. */
export type Kind = (typeof KINDS)[number];

export const KINDS = ['locks', 'permits', 'leaders', 'idempotency', 'jobs', 'cache', 'misses', 'robberies'] as const;

const MIXTURES: readonly (readonly Kind[])[] = [
  ['locks'],
  ['locks', 'permits'],
  ['locks', 'leaders'],
  ['idempotency', 'locks'],
  ['locks', 'jobs'],
  ['cache'],
  ['misses'],
  ['robberies'],
];

export type Swarm = ReturnType<typeof drawSwarm>;

export const MESSAGE_TIME = 0.325;

/** A part of a schedule that can be left out: a number of the swarm, one fault, or one caller. */
export type Without = ReadonlySet<string>;

/** The numbers of the swarm that are parts of a schedule. Other faults are parts one by one. */
export const SWITCHES = [
  'drift',
  'skew',
  'slow',
  'busy',
  'stall',
  'lostAnswers',
  'lateCopies',
  'lostMessages',
  'reads',
  'fifo',
  'several',
  'givesUp',
  'atOnce',
  'overstays',
  'blocks',
  'eager',
  'closesInside',
  'background',
  'lingers',
] as const;

const FAULTS = [
  'drift',
  'skew',
  'slow',
  'busy',
  'stall',
  'lostAnswers',
  'lateCopies',
  'lostMessages',
  'pauses',
  'cuts',
  'partitions',
  'deaths',
  'restarts',
  'congestions',
  'scriptFlushes',
  'clockBack',
  'emptied',
  'failovers',
  'evictions',
  'full',
  'readOnly',
  'messageCuts',
  'refusals',
  'blocks',
] as const;

/** The faults that a schedule has are those that are named beside this. */
export const NO_OTHER_FAULTS = Object.fromEntries(FAULTS.map((name) => [name, 0])) as Partial<Swarm>;

/** A schedule in which one thing happens and no other fault, or none at all. */
interface Only {
  readonly faultless?: boolean;
  readonly forgets?: boolean;
  readonly deaf?: boolean;
  readonly unheard?: boolean;
}

export function drawSwarm(random: Random, without: Without, only: Only = {}) {
  const faultless = only.faultless ?? random.chance(0.2);
  const fault = (value: number, p = 0.5) => (random.chance(p) && !faultless ? value : 0);
  const kind = (value: number, p: number) => (random.chance(p) ? value : 0);
  // What becomes of locks when Redis forgets them, where nothing else happens.
  const forgets = only.forgets ?? (!only.deaf && !only.faultless && random.chance(0.08));
  const numbers = {
    /** How much faster or slower a clock may run: two drift apart by twice this, and the library allows 1 %. */
    drift: fault(0.0045),
    /** How far (ms) a wall clock may be wrong. */
    skew: fault(60_000),
    /** The share of messages that take long, and how long (ms). */
    slow: fault(random.pick([0.01, 0.1, 0.4])),
    slowness: random.pick([5, 60, 400, 1_500]),
    /** The share of turns of an event loop that begin late. */
    busy: fault(0.2),
    /** The share of reads of a clock before which the process stands still, and for how long (ms). */
    stall: fault(0.002, 0.3),
    stallTime: random.pick([20, 200, 1_200]),
    /** The share of commands after which the connection ends, so that the client sends them again. */
    lostAnswers: fault(random.pick([0.002, 0.02]), 0.4),
    /** The share of commands that the client sends again on another connection before they arrive on this one. */
    lateCopies: fault(0.01, 0.15),
    pauses: fault(random.between(1, 6)),
    pauseTime: random.pick([50, 400, 2_500]),
    /** The share of messages of locks and primitives that get lost although the connection stays. */
    lostMessages: fault(random.pick([0.2, 1]), 0.2),
    cuts: fault(random.between(1, 8)),
    /** The share of cuts after which both ends keep the connection open. */
    silent: random.pick([0, 0.3]),
    /** How often the connections for messages of one process end as soon as they are made, and for how long (ms). */
    messageCuts: fault(random.between(1, 3), 0.15),
    messageCutTime: random.pick([500, 4_000]),
    partitions: fault(random.between(1, 3), 0.3),
    partitionTime: random.pick([500, 1_500, 4_000]),
    deaths: fault(1, 0.2),
    restarts: fault(1, 0.2),
    congestions: fault(random.between(1, 5), 0.4),
    scriptFlushes: fault(2, 0.3),
    clockBack: fault(random.between(1, 3), 0.2),
    emptied: fault(1, 0.1),
    failovers: fault(random.between(1, 2), 0.15),
    evictions: fault(random.between(1, 4), 0.1),
    /** How often there is no memory for a while. */
    full: fault(random.between(1, 3), 0.15),
    fullTime: random.pick([100, 1_500]),
    /** How often it refuses to write for that time, as a replica does. */
    readOnly: fault(random.between(1, 3), 0.1),
    /** How often the store refuses one process for good. */
    refusals: fault(1, 0.2),
    /** Whether the clock of the store goes back although tokens are lost: only one process then sees them rise. */
    tokensFall: kind(1, 0.1),

    reads: kind(0.4, 0.4),
    fifo: kind(0.5, 0.3),
    several: kind(0.3, 0.3),
    givesUp: kind(0.3, 0.3),
    atOnce: kind(0.7, 0.3),
    overstays: kind(0.4, 0.4),
    /** The share of bodies that block their event loop for most of their lease. */
    blocks: kind(0.1, 0.1),
    /** Whether the world looks at each lock after each turn, which may end a lease before the watchdog does. */
    eager: kind(1, 0.5),
    /** Whether the applications close from inside of a body, which holds a lock (1) or a permit (2). */
    closesInside: random.pick([0, 0, 1, 2]),
    /** The share of holds whose release nobody waits for. */
    background: kind(0.6, 0.4),
    /** The share of holds after which the lock stays with its process, and for how long (ms). */
    lingers: kind(0.6, 0.4),
    lingerTime: random.pick([50, 400, 5_000]),
  };
  if (forgets) for (const name of FAULTS) numbers[name] = name === 'emptied' ? 2 : 0;
  // Who waits learns of nothing by messages, where nothing else happens.
  const deaf = only.deaf ?? (!forgets && !only.faultless && random.chance(0.05));
  if (deaf) for (const name of FAULTS) numbers[name] = name === 'lostMessages' ? 1 : 0;
  // One process cannot listen, where nothing else happens.
  const unheard = only.unheard ?? (!forgets && !deaf && !only.faultless && random.chance(0.03));
  if (unheard) for (const name of FAULTS) numbers[name] = name === 'messageCuts' ? 3 : 0;
  // A clock that goes back after tokens were lost with the data repeats them, as docs/protocol.md says.
  if (numbers.emptied + numbers.failovers + numbers.evictions === 0) numbers.tokensFall = 0;
  else if (numbers.tokensFall === 0) numbers.clockBack = 0;
  for (const name of SWITCHES) if (without.has(name)) numbers[name] = 0;
  return {
    ...numbers,
    faultless: faultless && !forgets && !deaf && !unheard,
    forgets,
    deaf,
    unheard,
    processes: 2 + random.below(2),
    callers: 1 + random.below(4),
    kinds: random.chance(0.5) ? (MIXTURES[0] as readonly Kind[]) : random.pick(MIXTURES),
    names: random.pick([['a'], ['a', 'b']]),
    holdTime: random.pick([1, 30, 300]),
    ttl: random.pick([300, 800, 3_000]),
    commandTimeout: random.pick([500, 500, 3_000]),
    /** How long (ms) a message takes on average. */
    messageTime: MESSAGE_TIME,
    /** Whether each process keeps cached values in its memory, too; and the lease (ms) of a load. */
    firstLevel: random.chance(0.4),
    loadLease: random.pick([500, 5_000]),
    /** How long (ms) the longest loads of cached values take. */
    longestLoad: random.pick([3_000, 3_000, 8_000]),
    /** The one script whose copies come late; '': any. */
    lateOf: '',
    maxRetriesPerRequest: random.pick([1, 1, null]),
  };
}
